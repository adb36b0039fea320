package advisory

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// Mode is how a lock is held or wanted.
type Mode string

const (
	// Exclusive is the mode of a lock that nobody else may hold.
	Exclusive Mode = "exclusive"
	// Shared is the mode of a lock that others may hold in this mode.
	Shared Mode = "shared"
)

// Status is one session, or prepared transaction, that holds an advisory lock
// or waits for one.
//
// What is known of a session comes from pg_stat_activity, which hides State,
// ClientAddr and all times but WaitStart of other roles' sessions, so that they
// are zero here. A role sees all with pg_read_all_stats, which is part of
// pg_monitor, and those of roles that it is a member of. Key, Mode, Granted,
// PID, BlockedBy, WaitStart, User and Application are always shown.
//
// The server does not record since when a lock has been held, nor whether it
// belongs to the session or to its transaction.
type Status struct {
	// Key is the lock: as it was given to Inspect, and otherwise an ID or a
	// Pair, since the server knows no names.
	Key     Key
	Mode    Mode
	Granted bool // or else waits

	// PID is the server process of the session, and 0 for a prepared
	// transaction, which has none. To a client of a pooler the pooler tells
	// another number.
	PID uint32
	// Prepared is the name of the prepared transaction that holds the lock,
	// empty for a session.
	Prepared string
	// BlockedBy has the processes that a waiter waits for, in order: holders,
	// and waiters before it whose mode excludes its own. A prepared transaction
	// counts as 0. It is nil for a holder, and can be empty for a waiter that
	// is being served in this moment.
	BlockedBy []uint32

	User        string     // who logged in, or prepared the transaction
	Application string     // application_name
	ClientAddr  netip.Addr // zero for a Unix socket too

	// BackendStart is when the session began.
	BackendStart time.Time
	// WaitStart is when the wait began. It is zero for a holder, for a wait that
	// began in this moment, and before PostgreSQL 14.
	WaitStart time.Time
	// State is what the session does, such as "active", "idle" and "idle in
	// transaction", since StateChange. For a prepared transaction, StateChange
	// is when it was prepared.
	State       string
	StateChange time.Time
	// QueryStart is when the session's current query began, or its last one if
	// it is idle.
	QueryStart time.Time
	// At is the server's time when it looked. The ages below are from the
	// server's clock alone.
	At time.Time
}

// QueryAge is the time since QueryStart, or 0 if that is not known.
func (s Status) QueryAge() time.Duration { return s.since(s.QueryStart) }

// WaitAge is how long the session has waited, or 0 if that is not known.
func (s Status) WaitAge() time.Duration { return s.since(s.WaitStart) }

func (s Status) since(start time.Time) time.Duration {
	if start.IsZero() {
		return 0
	}
	return max(0, s.At.Sub(start))
}

func scanStatus(row pgx.CollectableRow, known map[lockid.ID]Key) (Status, error) {
	var (
		s                           Status
		objsubid                    int32
		id                          int64
		mode                        string
		pid                         *int32
		blockers                    []int32
		prepared, user, app         *string
		addr, state                 *string
		begun, wait, changed, query *time.Time
	)
	err := row.Scan(&objsubid, &id, &mode, &s.Granted, &pid, &blockers, &prepared, &user, &app, &addr,
		&begun, &wait, &state, &changed, &query, &s.At)
	if err != nil {
		return Status{}, err
	}
	s.Key, s.Mode = keyOf(idOf(objsubid, id), known), Exclusive
	if mode == "ShareLock" {
		s.Mode = Shared
	}
	s.PID = uint32(orZero(pid))
	for _, blocker := range blockers {
		s.BlockedBy = append(s.BlockedBy, uint32(blocker))
	}
	slices.Sort(s.BlockedBy)
	s.BlockedBy = slices.Compact(s.BlockedBy)
	s.Prepared, s.User, s.Application, s.State = orZero(prepared), orZero(user), orZero(app), orZero(state)
	s.BackendStart, s.WaitStart, s.StateChange, s.QueryStart = orZero(begun), orZero(wait), orZero(changed), orZero(query)
	if addr != nil {
		if s.ClientAddr, err = netip.ParseAddr(*addr); err != nil {
			return Status{}, fmt.Errorf("the client's address: %w", err)
		}
	}
	return s, nil
}

// idOf is the lock of a row of pg_locks.
func idOf(objsubid int32, number int64) lockid.ID {
	if objsubid == 2 {
		return lockid.ID{Space: lockid.Pairs, Number: number}
	}
	return lockid.OfNumber(number)
}

// keyOf is the key as it was given, or else one with the lock's number.
func keyOf(id lockid.ID, known map[lockid.ID]Key) Key {
	if key, ok := known[id]; ok {
		return key
	}
	if id.IsPair() {
		return Pair(id.Class(), id.Object())
	}
	return ID(id.Number)
}

func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func compareStatus(a, b Status) int {
	return cmp.Or(
		lockid.Compare(a.Key.lockID(), b.Key.lockID()),
		-compareBools(a.Granted, b.Granted),
		a.WaitStart.Compare(b.WaitStart),
		cmp.Compare(a.PID, b.PID),
		cmp.Compare(a.Prepared, b.Prepared),
		cmp.Compare(a.Mode, b.Mode),
	)
}

// compareBools puts false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
