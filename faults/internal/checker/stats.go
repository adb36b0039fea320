//go:build unix

package checker

import (
	"maps"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// Stats counts what happened.
type Stats struct {
	Faults    map[string]int // rounds, by kind
	Calls     int            // for a lock
	Grants    int
	Reads     int
	Writes    map[history.Outcome]int
	Takeovers int // grants after a holder that was lost or killed
	Overlaps  int // two who believed to hold, explained by a loss
	Losses    int // that were noticed after a fault or a takeover
	// WorstNotice is the longest that a process which ran did not know that it
	// had lost.
	WorstNotice time.Duration
	// WorstCall is how long a call for a lock went on after its context had ended,
	// and WorstUnlock how long an unlock took.
	WorstCall, WorstUnlock time.Duration
	// WorstRecovery is the longest from the end of a fault until all keys had been
	// granted and written to again.
	WorstRecovery time.Duration
	RecoveredFrom string // the fault of that
	LostWrites    int    // acknowledged ones that failovers lost which may lose them
}

// Add adds what happened in another history.
func (s *Stats) Add(o Stats) {
	if s.Faults == nil {
		s.Faults, s.Writes = make(map[string]int), make(map[history.Outcome]int)
	}
	for kind, n := range o.Faults {
		s.Faults[kind] += n
	}
	for outcome, n := range o.Writes {
		s.Writes[outcome] += n
	}
	s.Calls += o.Calls
	s.Grants += o.Grants
	s.Reads += o.Reads
	s.Takeovers += o.Takeovers
	s.Overlaps += o.Overlaps
	s.Losses += o.Losses
	s.WorstNotice = max(s.WorstNotice, o.WorstNotice)
	s.WorstCall = max(s.WorstCall, o.WorstCall)
	s.WorstUnlock = max(s.WorstUnlock, o.WorstUnlock)
	s.recovered(o.WorstRecovery, o.RecoveredFrom)
	s.LostWrites += o.LostWrites
}

func (s *Stats) recovered(took time.Duration, from string) {
	if took > s.WorstRecovery {
		s.WorstRecovery, s.RecoveredFrom = took, from
	}
}

// Operations is how many there were in all.
func (s *Stats) Operations() int {
	n := s.Calls + s.Reads
	for v := range maps.Values(s.Writes) {
		n += v
	}
	return n
}

func (j *judge) count(events []history.Event) Stats {
	s := Stats{
		Faults: make(map[string]int), Writes: make(map[history.Outcome]int),
		Overlaps: j.overlaps, Losses: j.notices, WorstNotice: j.worstNotice,
		WorstCall: j.worstCall, WorstUnlock: j.worstUnlock, LostWrites: j.lostWrites,
	}
	for _, e := range events {
		switch e.Kind {
		case history.LockBegin:
			s.Calls++
		case history.ReadEnd:
			s.Reads++
		case history.Healed:
			s.Faults[e.How]++
		case history.Recovered:
			s.recovered(e.Time.Sub(e.Since), e.How)
		default:
			// counted below
		}
	}
	for _, w := range j.writeByOp {
		s.Writes[w.outcome]++
	}
	for _, holds := range j.holds {
		s.Grants += len(holds)
		s.Takeovers += takeovers(holds)
	}
	return s
}

// takeovers counts the holds whose predecessor, by token, was another worker's
// and did not unlock in good order.
func takeovers(holds []*hold) (n int) {
	for _, h := range holds {
		var before *hold
		for _, other := range holds {
			if other.token < h.token && (before == nil || other.token > before.token) {
				before = other
			}
		}
		if before != nil && before.worker != h.worker && (before.lost || before.died != 0 || before.outcome == history.Failed) {
			n++
		}
	}
	return n
}
