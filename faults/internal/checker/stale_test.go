//go:build unix

package checker_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// superseded is a hold that was lost at 50 and one that was granted at 100.
func superseded(s *script) (old, current string) {
	old = s.grant(1, 0, 10, 101)
	s.fault(1, 49, 50)
	s.lost(1, old, 60)
	s.unlock(1, old, 400, 401, history.Failed)
	current = s.grant(2, 0, 100, 102)
	return old, current
}

func TestCheck_writeOfAnEarlierHolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commit, to int
		outcome    history.Outcome
		gone       bool
		bad        string
	}{
		"before the grant":                 {commit: 90, to: 120, outcome: history.OK},
		"after the grant, refused":         {to: 120, outcome: history.Stale, gone: true},
		"after the grant, accepted":        {commit: 110, to: 120, outcome: history.OK, bad: "accepted with token 101"},
		"after the grant, nobody knows":    {commit: 110, gone: true},
		"after the grant, and it is there": {commit: 110, bad: "accepted with token 101"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin()
			old, current := superseded(s)
			s.write(transaction{op: "w1", worker: 1, hold: old, token: 101, from: 80, commit: c.commit, to: c.to, outcome: c.outcome, gone: c.gone})
			s.write(transaction{op: "w2", worker: 2, hold: current, token: 102, from: 130, commit: 140, to: 150, outcome: history.OK})
			s.unlock(2, current, 160, 170, history.OK)
			if c.bad == "" {
				s.requireGood(t)
			} else {
				s.requireBad(t, checker.Stale, c.bad)
			}
		})
	}
}

// The clocks say nothing about when the grant was: the rows do.
func TestCheck_rowsOutOfTheTokensOrder(t *testing.T) {
	t.Parallel()
	s := begin()
	old, current := superseded(s)
	s.write(transaction{op: "w2", worker: 2, hold: current, token: 102, from: 130, commit: 140, to: 150, outcome: history.OK})
	s.write(transaction{op: "w1", worker: 1, hold: old, token: 101, from: 80, commit: 90, to: 160, outcome: history.OK})
	s.unlock(2, current, 160, 170, history.OK)
	s.requireBad(t, checker.Stale, "row 2 of w1 has token 101")
}

func TestCheck_refusalOfAHolder(t *testing.T) {
	t.Parallel()
	for outcome, text := range map[history.Outcome]string{
		history.Stale:   "refused as stale",
		history.Foreign: "as if that had never been issued",
	} {
		s := begin()
		op := s.grant(1, 0, 10, 101)
		s.write(transaction{op: "w1", worker: 1, hold: op, token: 101, from: 20, to: 30, outcome: outcome, gone: true})
		s.unlock(1, op, 50, 60, history.OK)
		s.requireBad(t, checker.Stale, text)
	}
}
