package advisory

import (
	"context"
	"fmt"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// Semaphore lets up to a limit of holders in at a time, across processes. Each
// holder has one of as many slots, each of which is an advisory lock, on a
// connection of its own. A holder that crashes frees its slot like any lock. It
// is safe for concurrent use, and can be made as often as it is needed.
//
// All who use a name must agree on the limit: while one holds a slot with another
// limit, the methods return an error that matches [ErrLimitDiffers]. It may also
// be met while one only waits.
//
// On the server, slot number i is the lock of
// Name("semaphore:" + name + ":" + i), from 0.
type Semaphore struct {
	locker *Locker
	name   string
	limit  int
	slots  []int64
}

// MaxSlots is the greatest limit of a [Semaphore].
const MaxSlots = 1 << 14

// Semaphore returns the semaphore of a name with a limit. It asks nothing of the
// server. An empty name, and a limit below 1 or above [MaxSlots], are reported
// by its methods.
func (l *Locker) Semaphore(name string, limit int) *Semaphore {
	s := &Semaphore{locker: l, name: name, limit: limit}
	if s.validate() == nil {
		s.slots = make([]int64, limit)
		for i := range s.slots {
			s.slots[i] = s.slot(i).id
		}
	}
	return s
}

func (s *Semaphore) slot(i int) Key { return Name(fmt.Sprintf("semaphore:%s:%d", s.name, i)) }

// announcement is a lock that all holders share and that tells the limit: a hash
// of the name in its high bits, the limit in the low ones.
func (s *Semaphore) announcement() int64 {
	return lockid.Hash("semaphore:"+s.name)&^limitMask | int64(s.limit)
}

const limitMask = 1<<20 - 1

func (s *Semaphore) validate() error {
	if s.limit < 1 || s.limit > MaxSlots {
		return fmt.Errorf("the limit is %d; it must be from 1 to %d", s.limit, MaxSlots)
	}
	return Name(s.name).validate()
}

// TryAcquire takes a free slot if there is one, in one round trip. The Lock is
// that slot's. ctx and errors are as with [Locker.TryLock]: ErrNotAcquired means
// that all slots are taken.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Lock, error) {
	return s.acquire(ctx, "try slot of", true)
}

// Acquire waits until a slot is free or ctx ends. Calls of one Locker for one
// semaphore are served in the order in which they came, on one connection. A wait
// is for one slot at a time: that another one is free is noticed within a third
// of a second. ctx and errors are as with [Locker.Lock].
func (s *Semaphore) Acquire(ctx context.Context) (*Lock, error) {
	return s.acquire(ctx, "slot of", false)
}

func (s *Semaphore) acquire(ctx context.Context, verb string, try bool) (*Lock, error) {
	r := request{
		Request: lockproto.Request{
			Targets: []lockid.Target{{ID: lockid.ID{Space: lockid.Semaphores, Number: s.announcement()}, Shared: true}},
			Name:    s.name,
			Slots:   &lockproto.Slots{IDs: s.slots, Announcement: s.announcement()},
		},
		keys:      []Key{Name(s.name)},
		semaphore: s,
	}
	return s.locker.acquireOne(ctx, verb, &waiter{request: r, shared: true, try: try})
}
