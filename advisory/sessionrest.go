package advisory

import (
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// errLockedOften: the server counts how often a session has locked, and does not tell.
var errLockedOften = errors.New("functions of Lock.Tx have locked the key too often to undo it in time")

// freeRest frees what functions of [Lock.Tx] have locked besides, or once more, of the
// keys that a batch has unlocked. The server counts the locks of a session: it keeps one
// until it was unlocked as often as it was locked. More often would have it warn.
func (s *Session) freeRest(batch []*operation) error {
	rows := s.restOf(batch)
	for start := time.Now(); len(rows) > 0; {
		held, err := s.batches.Held(rows)
		if err != nil {
			return err
		}
		var rest []lockproto.Row
		for i, r := range rows {
			if held.OK(i) {
				rest = append(rest, lockproto.Row{Target: r.Target, Release: true})
			}
		}
		if rows = rest; len(rows) == 0 {
			return nil
		}
		if time.Since(start) > s.locker.config.UnlockTimeout {
			return errLockedOften
		}
		if _, err := s.batches.Run(rows); err != nil {
			return err
		}
	}
	return nil
}

// restOf returns rows for the keys that a batch has unlocked, in each mode in which no
// lock of the Session has them.
func (s *Session) restOf(batch []*operation) (rows []lockproto.Row) {
	owned := s.ownedAfter(batch)
	for _, op := range batch {
		if !op.unlocks || op.err != nil {
			continue
		}
		for _, t := range op.lock.locks {
			for _, shared := range []bool{false, true} {
				t.Shared = shared
				if !owned[t] {
					owned[t] = true // one row for each
					rows = append(rows, lockproto.Row{Target: t})
				}
			}
		}
	}
	return rows
}

// ownedAfter returns what the locks of the Session hold once a batch is concluded.
func (s *Session) ownedAfter(batch []*operation) map[lockid.Target]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	owned, unlocked := make(map[lockid.Target]bool), make(map[*sessionLock]bool)
	note := func(k *sessionLock) {
		for _, t := range k.locks {
			owned[t] = true
		}
	}
	for _, op := range batch {
		unlocked[op.lock] = op.unlocks
		if op.isGranted() {
			note(op.lock)
		}
	}
	for k := range s.locks {
		if !unlocked[k] {
			note(k)
		}
	}
	return owned
}
