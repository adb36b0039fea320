//go:build unix

package history

import "time"

// A Kind says what an event tells of.
type Kind string

// What workers tell.
const (
	Born       Kind = "born"       // a process has begun
	LockBegin  Kind = "lock"       // asks for a key
	LockEnd    Kind = "lock-end"   // Outcome OK: Op holds the key from now on
	Done       Kind = "done"       // Done of the hold Op was closed; Lost if by a loss
	UnlockEnd  Kind = "unlock-end" // Outcome OK: held until the unlock
	Unlock     Kind = "unlock"     // begins to unlock the hold Op
	WriteBegin Kind = "write"      // begins a transaction that writes, of Hold
	Commit     Kind = "commit"     // is about to commit it
	WriteEnd   Kind = "write-end"  // Outcome of the whole
	ReadBegin  Kind = "read"       // of the register
	ReadEnd    Kind = "read-end"   // Was is what was read
	Stall      Kind = "stall"      // this process did not run from Since to Time
	Rest       Kind = "rest"       // does nothing, and holds nothing
	Ended      Kind = "ended"      // is about to exit, Outcome OK if nothing is left
	Hogged     Kind = "hogged"     // has had the whole pool from Since to Time
)

// What the controller tells.
const (
	Fault     Kind = "fault"     // was done from Since to Time
	Recovered Kind = "recovered" // all keys are granted and written to again, since Since
	Healed    Kind = "healed"    // what it had done is undone
	Death     Kind = "death"     // a worker was killed, from Since to Time
	Content   Kind = "content"   // what is in the tables of Key; see Event.Content
	Promotion Kind = "promotion" // of a standby, from Since to Time; the contents of before follow
	Left      Kind = "left"      // something was left that should not be: Err
	Stuck     Kind = "stuck"     // nobody has got Key for too long
)

// An Outcome is that of an operation.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"      // done
	Stale   Outcome = "stale"   // refused: the token is stale
	Foreign Outcome = "foreign" // refused: not stamped, or with a token that was never issued
	Failed  Outcome = "failed"  // not done
	Unknown Outcome = "unknown" // done or not
)

// Event is one line of a history. Which fields it has depends on its Kind.
type Event struct {
	Time   Time `json:"t"`
	Kind   Kind `json:"kind"`
	Worker int  `json:"w,omitempty"`    // 1 and up; 0 is the controller, or all
	Life   int  `json:"life,omitempty"` // which of the worker's processes

	Op      string  `json:"op,omitempty"`   // unique
	Hold    string  `json:"hold,omitempty"` // the Op of the grant that it belongs to
	Key     string  `json:"key,omitempty"`
	Token   int64   `json:"token,omitempty"`
	PID     uint32  `json:"pid,omitempty"` // of the server's process
	Outcome Outcome `json:"outcome,omitempty"`
	Err     string  `json:"err,omitempty"`
	Lost    bool    `json:"lost,omitempty"`

	How       string `json:"how,omitempty"`       // the call, the isolation level, the fault
	Swap      bool   `json:"swap,omitempty"`      // the write is to the register too
	Was       string `json:"was,omitempty"`       // what the register was
	Era       int    `json:"era,omitempty"`       // the server's timeline
	OnSession bool   `json:"onsession,omitempty"` // the write is on the session that holds
	Since     Time   `json:"since,omitempty"`

	// Of a call for a lock, how long it may take.
	Limit time.Duration `json:"limit,omitempty"`

	// Of a grant, that it is of a lock in Redis; of a fault, that it was done to Redis
	// or on the way there.
	Redis bool `json:"redis,omitempty"`

	// Of a fault, what it cut off from its lock: all, those of Worker, or those
	// of the session PID. False if it is none of these.
	Severs bool `json:"severs,omitempty"`
	// Of a fault, that it hit the lock of Key alone.
	Only bool `json:"only,omitempty"`
	// Of a promotion.
	Lossy bool `json:"lossy,omitempty"`
	Safe  Time `json:"safe,omitempty"` // what was acknowledged before this was on the standby

	Content *Tables `json:"content,omitempty"`
}

// Tables is what is in the tables of one key.
type Tables struct {
	Register string `json:"register"` // the Op that wrote it last
	Rows     []Row  `json:"rows"`     // of the journal, of this segment, in order
	Older    int    `json:"older"`    // how many rows are of earlier segments
	Mark     int64  `json:"mark"`
	Marks    int    `json:"marks,omitempty"` // how many there are: one for each key
}

// Row is one of the journal.
type Row struct {
	ID     int64  `json:"id"` // in the order of writing
	Op     string `json:"op"`
	Token  int64  `json:"token"`
	Worker int    `json:"w"`
	Swap   bool   `json:"swap,omitempty"`
}
