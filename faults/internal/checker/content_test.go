//go:build unix

package checker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// held is a hold in good order from 10 to 900.
func held(s *script) string {
	op := s.grant(1, 0, 10, 101)
	s.unlock(1, op, 900, 910, history.OK)
	return op
}

func TestCheck_whatIsThere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		commit, to int
		outcome    history.Outcome
		gone       bool
		bad        string
	}{
		"acknowledged":                        {commit: 30, to: 40, outcome: history.OK},
		"acknowledged, and not there":         {commit: 30, to: 40, outcome: history.OK, gone: true, bad: "was acknowledged and is not there"},
		"failed":                              {commit: 30, to: 40, outcome: history.Failed, gone: true},
		"failed, and there":                   {commit: 30, to: 40, outcome: history.Failed, bad: `its outcome was "failed"`},
		"unknown, and not there":              {commit: 30, to: 40, outcome: history.Unknown, gone: true},
		"unknown, and there":                  {commit: 30, to: 40, outcome: history.Unknown},
		"killed before the commit":            {gone: true},
		"killed before the commit, and there": {bad: "which nobody has committed"},
		"killed after the commit, and there":  {commit: 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin()
			s.write(transaction{op: "w1", worker: 1, hold: held(s), token: 101, from: 20, commit: c.commit, to: c.to, outcome: c.outcome, gone: c.gone})
			if c.bad == "" {
				s.requireGood(t)
			} else {
				s.requireBad(t, checker.Content, c.bad)
			}
		})
	}
}

func TestCheck_rowsThatNobodyWrote(t *testing.T) {
	t.Parallel()
	for text, spoil := range map[string]func(*script){
		"which nobody has committed":      func(s *script) { s.rows[0].Op = "w9" },
		"is not what w1 has written":      func(s *script) { s.rows[0].Worker = 2 },
		"is there twice":                  func(s *script) { s.rows = append(s.rows, s.rows[0]) },
		"the register is of \"other\"":    func(s *script) { s.swap = "other" },
		"the mark is only 100 at the end": func(s *script) { s.mark = 100 },
		"there are 2 marks":               func(s *script) { s.marks = 2 },
	} {
		s := begin()
		s.write(transaction{op: "w1", worker: 1, hold: held(s), token: 101, from: 20, commit: 30, to: 40, outcome: history.OK})
		spoil(s)
		var texts []string
		for _, v := range s.check().Violations {
			if v.Rule == checker.Content {
				texts = append(texts, v.Text)
			}
		}
		require.NotEmpty(t, texts)
		require.Contains(t, texts[len(texts)-1]+texts[0], text)
	}
}

func TestCheck_rowsOfEarlierSegments(t *testing.T) {
	t.Parallel()
	s := begin()
	s.look(10_000)
	s.events[1].Content.Older = 9
	violations := checker.Check(s.events, limits).Violations
	require.Len(t, violations, 1)
	require.Equal(t, checker.Content, violations[0].Rule)
}

// failover is a promotion between two writes that are acknowledged at 40 and at
// 60. The standby had all until 50.
func failover(s *script, isLossy, firstGone, secondGone bool) {
	op := s.grant(1, 0, 10, 101)
	s.write(transaction{op: "w1", worker: 1, hold: op, token: 101, from: 20, commit: 30, to: 40, outcome: history.OK, gone: firstGone, era: 1, was: "before"})
	s.write(transaction{op: "w2", worker: 1, hold: op, token: 101, from: 52, commit: 55, to: 60, outcome: history.OK, gone: secondGone, era: 1, was: "w1"})
	s.fault(0, 70, 200)
	s.add(200, history.Event{Kind: history.Promotion, Era: 2, Lossy: isLossy, Safe: ms(50), Since: ms(70)})
	s.look(201)
	s.lost(1, op, 210)
	s.unlock(1, op, 220, 221, history.Failed)
	later := s.grant(2, 300, 310, 201)
	s.write(transaction{op: "w3", worker: 2, hold: later, token: 201, from: 320, commit: 330, to: 340, outcome: history.OK, era: 2, was: s.swap})
	s.unlock(2, later, 400, 410, history.OK)
}

func TestCheck_failover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		isLossy, firstGone, secondGone bool
		lost                           int
		rule                           checker.Rule
		bad                            string
	}{
		"without loss":                        {},
		"without loss, and something is lost": {secondGone: true, rule: checker.Content, bad: "w2 was acknowledged and is not there"},
		"with loss, and nothing is lost":      {isLossy: true},
		"with loss":                           {isLossy: true, secondGone: true, lost: 1},
		"with loss of what the standby had":   {isLossy: true, firstGone: true, secondGone: true, rule: checker.Content, bad: "w1 was acknowledged and is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin()
			failover(s, c.isLossy, c.firstGone, c.secondGone)
			if c.bad == "" {
				require.Equal(t, c.lost, s.requireGood(t).Stats.LostWrites)
			} else {
				s.requireBad(t, c.rule, c.bad)
			}
		})
	}
}

// What a standby has is the beginning of what the primary had.
func TestCheck_failoverThatLosesFromTheMiddle(t *testing.T) {
	t.Parallel()
	s := begin()
	op := s.grant(1, 0, 10, 101)
	s.write(transaction{op: "w1", worker: 1, hold: op, token: 101, from: 52, commit: 54, to: 56, outcome: history.OK, era: 1, gone: true})
	s.write(transaction{op: "w2", worker: 1, hold: op, token: 101, from: 57, commit: 58, to: 60, outcome: history.OK, era: 1})
	s.fault(0, 70, 200)
	s.add(200, history.Event{Kind: history.Promotion, Era: 2, Lossy: true, Safe: ms(50), Since: ms(70)})
	s.look(201)
	s.lost(1, op, 210)
	s.unlock(1, op, 220, 221, history.Failed)
	s.requireBad(t, checker.Content, "lost write w1 and kept the later w2")
}

// A token that only the lost end of the old primary knew is one that the new one
// has never issued.
func TestCheck_failoverThatForgetsAToken(t *testing.T) {
	t.Parallel()
	for granted, isGood := range map[int]bool{40: false, 60: true} {
		s := begin()
		op := s.grant(1, 0, granted, 101)
		s.fault(0, 70, 200)
		s.mark = 100
		s.add(200, history.Event{Kind: history.Promotion, Era: 2, Lossy: true, Safe: ms(50), Since: ms(70)})
		s.look(201)
		s.lost(1, op, 210)
		s.write(transaction{op: "w1", worker: 1, hold: op, token: 101, from: 220, to: 230, outcome: history.Foreign, gone: true})
		s.unlock(1, op, 240, 241, history.Failed)
		require.Equal(t, isGood, len(s.check().Violations) == 0, granted)
	}
}
