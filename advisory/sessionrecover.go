package advisory

import (
	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// recover finds out what a round trip that failed has done, if the session lives,
// and makes up for it: the locks of its operations are released.
func (s *Session) recover(batch []*operation, rows []lockproto.Row, results lockproto.Results, cause error) *connhold.Loss {
	undo, err := s.leftOver(rows, results, cause)
	if err == nil && len(undo) > 0 {
		err = s.batches.Undo(undo)
	}
	if err != nil {
		return asLoss(err)
	}
	for _, op := range batch {
		op.err = explain(cause)
		if op.unlocks { // it is unlocked by now; whether it was held until then is not known
			op.err = wrap("unlock", op.lock.keys, op.err)
		}
	}
	s.decide(batch)
	s.conclude(batch)
	return nil
}

// leftOver returns what the session holds of rows after a round trip that failed,
// to be unlocked.
func (s *Session) leftOver(rows []lockproto.Row, results lockproto.Results, cause error) (undo []lockproto.Row, err error) {
	isHeld := func(i int) bool { return results.OK(i) }
	switch {
	case isPanic(cause) && results == "": // nothing was done
		isHeld = func(i int) bool { return rows[i].Release }
	case isPanic(cause): // all was done
		isHeld = func(i int) bool { return !rows[i].Release && results.OK(i) }
	case connhold.LossFrom(cause) != nil || s.isAmbiguous(rows):
		return nil, cause
	default:
		if results, err = s.batches.Held(rows); err != nil {
			return nil, err
		}
	}
	for i, r := range rows {
		if isHeld(i) {
			r.Release = true
			undo = append(undo, r)
		}
	}
	return undo, nil
}

// isAmbiguous reports whether the session may hold one of the rows' locks more
// than once, which the server counts and does not tell: in the shared mode.
func (s *Session) isAmbiguous(rows []lockproto.Row) bool {
	shared := make(map[lockid.ID]int)
	for _, r := range rows {
		if r.Shared {
			shared[r.ID]++
		}
	}
	if len(shared) == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.locks {
		for _, t := range k.locks {
			if n, ok := shared[t.ID]; ok && t.Shared {
				shared[t.ID] = n + 1
			}
		}
	}
	for _, n := range shared {
		if n > 1 {
			return true
		}
	}
	return false
}

// asLoss is for an error after which it is not known what the session holds.
func asLoss(err error) *connhold.Loss {
	if loss := connhold.LossFrom(err); loss != nil {
		return loss
	}
	return &connhold.Loss{Reason: connhold.Disconnected, Cause: err}
}
