//go:build unix

package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// Limits are what the history is held against.
type Limits struct {
	Notice time.Duration // Heartbeat + HeartbeatTimeout of the workers
	Unlock time.Duration // UnlockTimeout and a second
	Slack  time.Duration // what a process may take to tell, besides its stalls
}

// Rule names one of the rules; see the package's documentation.
type Rule string

// The rules.
const (
	Token     Rule = "token"
	Stale     Rule = "stale"
	Content   Rule = "content"
	Exclusion Rule = "exclusion"
	Notice    Rule = "notice"
	Bound     Rule = "bound"
	Register  Rule = "register"
	Left      Rule = "left"
	Stuck     Rule = "stuck"
)

// Violation is one breach of a rule.
type Violation struct {
	Rule Rule
	Key  string       // "" if it is about none
	At   history.Time // when it showed
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s", v.Rule, v.Text) }

// Result is what a history amounts to.
type Result struct {
	Violations []Violation // in order of time
	Stats      Stats
}

// Check judges a history. It must have the contents of all keys from before the
// first operation and from after the last.
func Check(events []history.Event, limits Limits) Result {
	r := newRun(events)
	j := &judge{run: r, limits: limits}
	for _, key := range r.keys {
		j.checkTokens(key)
		j.checkStale(key)
		j.checkContent(key)
		j.checkExclusion(key)
		j.checkRegister(key)
	}
	j.checkPromotions()
	j.checkNotice()
	j.checkBounds()
	j.checkLeft()
	slices.SortStableFunc(j.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return Result{Violations: j.found, Stats: j.count(events)}
}

// judge collects what is found.
type judge struct {
	*run
	limits Limits
	found  []Violation

	worstNotice time.Duration
	worstCall   time.Duration
	worstUnlock time.Duration
	notices     int
	overlaps    int
	lostWrites  int // acknowledged, and lost by a failover that may lose them
}

func (j *judge) blame(rule Rule, key string, at history.Time, format string, args ...any) {
	j.found = append(j.found, Violation{Rule: rule, Key: key, At: at, Text: fmt.Sprintf(format, args...)})
}
