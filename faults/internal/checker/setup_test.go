//go:build unix

package checker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

const key = "a"

var limits = checker.Limits{Notice: 500 * time.Millisecond, Unlock: time.Second, Slack: 100 * time.Millisecond}

// script writes a history by hand. Its times are milliseconds.
type script struct {
	events []history.Event
	rows   []history.Row
	mark   int64
	marks  int // 0 stands for one
	swap   string
}

// begin is a script with the tables of one key, which were empty but for ten
// earlier rows.
func begin() *script {
	s := &script{mark: 100, swap: "before"}
	s.look(0)
	return s
}

func ms(n int) history.Time { return history.Time(0).Add(time.Duration(n) * time.Millisecond) }

func (s *script) add(at int, e history.Event) {
	e.Time = ms(at)
	if e.Key == "" {
		e.Key = key
	}
	s.events = append(s.events, e)
}

// look notes what is in the tables.
func (s *script) look(at int) {
	s.add(at, history.Event{Kind: history.Content, Content: &history.Tables{
		Register: s.swap, Rows: append([]history.Row(nil), s.rows...), Older: 10, Mark: s.mark, Marks: s.marks,
	}})
}

// grant is one to worker w, of the number of its token: its name is the token's.
func (s *script) grant(w int, asked, granted int, token int64) string {
	op := fmt.Sprintf("h%d.%d", w, token)
	s.add(asked, history.Event{Kind: history.LockBegin, Worker: w, Life: 1, Op: op})
	s.add(granted, history.Event{Kind: history.LockEnd, Worker: w, Life: 1, Op: op, Token: token, PID: uint32(token), Outcome: history.OK})
	s.mark = max(s.mark, token)
	return op
}

func (s *script) unlock(w int, op string, from, to int, outcome history.Outcome) {
	s.add(from, history.Event{Kind: history.Unlock, Worker: w, Life: 1, Op: op})
	if !slices.ContainsFunc(s.events, func(e history.Event) bool { return e.Kind == history.Done && e.Op == op }) {
		s.add(from, history.Event{Kind: history.Done, Worker: w, Life: 1, Op: op})
	}
	s.add(to, history.Event{Kind: history.UnlockEnd, Worker: w, Life: 1, Op: op, Outcome: outcome})
}

func (s *script) lost(w int, op string, at int) {
	s.add(at, history.Event{Kind: history.Done, Worker: w, Life: 1, Op: op, Lost: true})
}

// transaction is one write.
type transaction struct {
	op               string
	worker           int
	hold             string
	token            int64
	from, commit, to int // to is 0 if its end is not told, commit if it was not asked for
	outcome          history.Outcome
	was              string // what it read, if it is a swap
	gone             bool   // it is not in the tables
	era              int
	onSession        bool
}

func (s *script) write(w transaction) {
	s.add(w.from, history.Event{
		Kind: history.WriteBegin, Worker: w.worker, Life: 1, Op: w.op, Hold: w.hold, Token: w.token,
		Swap: w.was != "", OnSession: w.onSession,
	})
	if w.commit != 0 {
		s.add(w.commit, history.Event{Kind: history.Commit, Worker: w.worker, Op: w.op, Was: w.was, Era: w.era})
	}
	if w.to != 0 {
		s.add(w.to, history.Event{Kind: history.WriteEnd, Worker: w.worker, Op: w.op, Outcome: w.outcome})
	}
	if !w.gone {
		s.rows = append(s.rows, history.Row{ID: int64(len(s.rows) + 1), Op: w.op, Token: w.token, Worker: w.worker, Swap: w.was != ""})
		if w.was != "" {
			s.swap = w.op
		}
	}
}

func (s *script) read(from, to int, was string) {
	op := fmt.Sprintf("r%d", len(s.events))
	s.add(from, history.Event{Kind: history.ReadBegin, Worker: 9, Op: op})
	s.add(to, history.Event{Kind: history.ReadEnd, Worker: 9, Op: op, Was: was, Outcome: history.OK})
}

// fault is one that cuts off worker w from all its locks.
func (s *script) fault(w, from, to int) {
	s.add(to, history.Event{Kind: history.Fault, How: "cut", Worker: w, Since: ms(from), Severs: true})
}

// check ends the script and judges it.
func (s *script) check() checker.Result {
	s.look(10_000)
	return checker.Check(s.events, limits)
}

// requireGood requires that nothing is found.
func (s *script) requireGood(t *testing.T) checker.Result {
	t.Helper()
	result := s.check()
	require.Empty(t, result.Violations)
	return result
}

// requireBad requires that all that is found is against one rule, or another of
// those that are named.
func (s *script) requireBad(t *testing.T, rule checker.Rule, text string, others ...checker.Rule) {
	t.Helper()
	violations := s.check().Violations
	i := slices.IndexFunc(violations, func(v checker.Violation) bool { return v.Rule == rule })
	require.GreaterOrEqual(t, i, 0, violations)
	require.Contains(t, violations[i].Text, text)
	for _, v := range violations {
		require.Contains(t, append(others, rule), v.Rule, violations)
	}
}
