//go:build unix

package checker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// swap is a write to the register of one hold, from its begin to ten later.
func (s *script) swapAt(hold, op, was string, from int, outcome history.Outcome, gone bool) {
	w := transaction{op: op, worker: 1, hold: hold, token: 101, from: from, commit: from + 5, to: from + 10, outcome: outcome, was: was, gone: gone, era: 1}
	if outcome == "" {
		w.to = 0
	}
	s.write(w)
}

func TestCheck_registerThatIsLinearizable(t *testing.T) {
	t.Parallel()
	s := begin()
	op := held(s)
	s.read(11, 12, "before")
	s.swapAt(op, "w1", "before", 20, history.OK, false)
	s.read(22, 24, "w1") // it may be seen before it is acknowledged
	s.read(25, 27, "w1")
	s.swapAt(op, "w2", "w1", 40, history.Unknown, false)
	s.swapAt(op, "w3", "w2", 60, "", false)
	s.swapAt(op, "w4", "w3", 80, history.Unknown, true) // did not happen
	s.read(100, 110, "w3")
	s.requireGood(t)
}

func TestCheck_registerThatIsNot(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*script, string){
		"an old read": func(s *script, _ string) { s.read(31, 32, "before") },
		"a read that goes back": func(s *script, op string) {
			s.swapAt(op, "w2", "w1", 40, history.OK, false)
			s.read(41, 42, "w2")
			s.read(43, 44, "w1")
		},
		"a lost update": func(s *script, op string) { s.swapAt(op, "w2", "before", 40, history.OK, false) },
		"a read of what never was": func(s *script, op string) {
			s.swapAt(op, "w2", "w1", 40, history.Unknown, true)
			s.read(60, 61, "w2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin()
			op := held(s)
			s.swapAt(op, "w1", "before", 20, history.OK, false)
			spoil(s, op)
			s.requireBad(t, checker.Register, "not linearizable")
		})
	}
}

// Somebody read a write whose outcome is unknown, and then a failover lost it.
func TestCheck_registerWhoseEndAFailoverLost(t *testing.T) {
	t.Parallel()
	for was, isGood := range map[string]bool{"before": true, "w2": false} {
		s := begin()
		op := s.grant(1, 0, 10, 101)
		s.swapAt(op, "w1", "before", 52, "", true)
		s.add(60, history.Event{Kind: history.ReadBegin, Worker: 9, Op: "r1"})
		s.add(61, history.Event{Kind: history.ReadEnd, Worker: 9, Op: "r1", Was: "w1", Era: 1, Outcome: history.OK})
		s.fault(0, 70, 200)
		s.add(200, history.Event{Kind: history.Promotion, Era: 2, Lossy: true, Safe: ms(50), Since: ms(70)})
		s.look(201)
		s.lost(1, op, 210)
		s.unlock(1, op, 220, 221, history.Failed)
		s.add(230, history.Event{Kind: history.ReadBegin, Worker: 9, Op: "r2"})
		s.add(231, history.Event{Kind: history.ReadEnd, Worker: 9, Op: "r2", Was: was, Era: 2, Outcome: history.OK})
		require.Equal(t, isGood, len(s.check().Violations) == 0, was)
	}
}
