//go:build unix

package checker_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

func TestCheck_overlapAfterALoss(t *testing.T) {
	t.Parallel()
	s := begin()
	old := s.grant(1, 0, 10, 101)
	s.fault(1, 49, 50)
	current := s.grant(2, 0, 100, 102)
	s.lost(1, old, 300)
	s.unlock(1, old, 310, 311, history.Failed)
	s.unlock(2, current, 400, 410, history.OK)
	stats := s.requireGood(t).Stats
	require.Equal(t, 1, stats.Overlaps)
	require.Equal(t, 1, stats.Takeovers)
	require.Equal(t, 250*time.Millisecond, stats.WorstNotice)
}

func TestCheck_overlapWithoutALoss(t *testing.T) {
	t.Parallel()
	s := begin()
	old := s.grant(1, 0, 10, 101)
	current := s.grant(2, 0, 100, 102)
	s.unlock(1, old, 310, 311, "") // what it said nobody knows
	s.unlock(2, current, 400, 410, history.OK)
	s.requireBad(t, checker.Exclusion, "nothing explains a loss")
}

func TestCheck_overlapOfAHolderThatUnlocksInGoodOrder(t *testing.T) {
	t.Parallel()
	s := begin()
	old := s.grant(1, 0, 10, 101)
	s.fault(1, 49, 50)
	current := s.grant(2, 0, 100, 102)
	s.unlock(1, old, 310, 311, history.OK)
	s.unlock(2, current, 400, 410, history.OK)
	s.requireBad(t, checker.Exclusion, "which then unlocked in good order", checker.Token)
}

// It was killed at 200, and the other had its lock before.
func TestCheck_overlapBeforeADeath(t *testing.T) {
	t.Parallel()
	for granted, isGood := range map[int]bool{100: false, 250: true} {
		s := begin()
		s.grant(1, 0, 10, 101)
		current := s.grant(2, 0, granted, 102)
		s.fault(1, 199, 200)
		s.add(200, history.Event{Kind: history.Death, Worker: 1, Life: 1, Since: ms(199)})
		s.unlock(2, current, 400, 410, history.OK)
		require.Equal(t, isGood, len(s.check().Violations) == 0, granted)
	}
}

func TestCheck_notice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		done int
		more func(*script, string)
		bad  bool
	}{
		"in time": {done: 649},
		"late":    {done: 651, bad: true},
		"never":   {bad: true},
		"late, because the process was stopped": {done: 1000, more: func(s *script, _ string) {
			s.add(900, history.Event{Kind: history.Stall, Worker: 1, Life: 1, Since: ms(500)})
		}},
		"late, and another was stopped": {done: 1000, bad: true, more: func(s *script, _ string) {
			s.add(900, history.Event{Kind: history.Stall, Worker: 2, Life: 1, Since: ms(500)})
		}},
		"late, because of a transaction on the session": {done: 1000, more: func(s *script, op string) {
			s.write(transaction{op: "w1", worker: 1, hold: op, token: 101, from: 40, to: 900, outcome: history.Failed, gone: true, onSession: true})
		}},
		"late, and the transaction was on another session": {done: 1000, bad: true, more: func(s *script, op string) {
			s.write(transaction{op: "w1", worker: 1, hold: op, token: 101, from: 40, to: 900, outcome: history.Failed, gone: true})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin()
			op := s.grant(1, 0, 10, 101)
			s.fault(1, 49, 50)
			if c.more != nil {
				c.more(s, op)
			}
			if c.done != 0 {
				s.lost(1, op, c.done)
				s.unlock(1, op, c.done+1, c.done+2, history.Failed)
			}
			if c.bad {
				s.requireBad(t, checker.Notice, "h1.101 knew only")
			} else {
				s.requireGood(t)
			}
		})
	}
}

// No fault is known that explains it, but somebody else has the lock.
func TestCheck_noticeAfterATakeover(t *testing.T) {
	t.Parallel()
	s := begin()
	old := s.grant(1, 0, 10, 101)
	current := s.grant(2, 0, 100, 102)
	s.lost(1, old, 701)
	s.unlock(2, current, 800, 801, history.OK)
	s.requireBad(t, checker.Notice, "after the grant to h2.102")
}

func TestCheck_bounds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answered, unlocked int
		stalled            bool
		bad                string
	}{
		"in time":                               {answered: 350, unlocked: 2050},
		"a late call":                           {answered: 351, unlocked: 600, bad: "returned 101ms after its context had ended"},
		"a late call that was stopped":          {answered: 700, unlocked: 1100, stalled: true},
		"a late unlock":                         {answered: 300, unlocked: 2101, bad: "took 1.101s"},
		"a late unlock of one that was stopped": {answered: 300, unlocked: 2200, stalled: true, bad: "took 1.2s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin()
			op := s.grant(1, 0, c.answered, 101)
			s.events[1].Limit = 250 * time.Millisecond
			if c.stalled {
				s.add(650, history.Event{Kind: history.Stall, Worker: 1, Life: 1, Since: ms(250)})
			}
			s.unlock(1, op, 1000, c.unlocked, history.OK)
			if c.bad == "" {
				s.requireGood(t)
			} else {
				s.requireBad(t, checker.Bound, c.bad)
			}
		})
	}
}

func TestCheck_whatIsLeft(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event history.Event
		rule  checker.Rule
	}{
		"a lock":            {history.Event{Kind: history.Left, Err: "locks"}, checker.Left},
		"a connection":      {history.Event{Kind: history.Rest, Worker: 1, Outcome: history.Failed}, checker.Left},
		"a goroutine":       {history.Event{Kind: history.Ended, Worker: 1, Outcome: history.Failed}, checker.Left},
		"a process":         {history.Event{Kind: history.Born, Worker: 2}, checker.Left},
		"a key without end": {history.Event{Kind: history.Stuck, Err: "nobody got it"}, checker.Stuck},
		"nothing":           {history.Event{Kind: history.Rest, Worker: 1, Outcome: history.OK}, ""},
	} {
		s := begin()
		s.add(1, history.Event{Kind: history.Born, Worker: 1, Life: 1})
		s.add(2, c.event)
		s.add(3, history.Event{Kind: history.Ended, Worker: 1, Outcome: history.OK})
		if c.rule == "" {
			s.requireGood(t)
			continue
		}
		violations := s.check().Violations
		require.Len(t, violations, 1, name)
		require.Equal(t, c.rule, violations[0].Rule, name)
	}
}
