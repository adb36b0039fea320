//go:build unix

package checker_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

func TestCheck_tokensThatGrow(t *testing.T) {
	t.Parallel()
	s := begin()
	for i := range 3 {
		op := s.grant(i+1, i*100, i*100+10, int64(101+i))
		s.unlock(i+1, op, i*100+50, i*100+60, history.OK)
	}
	s.requireGood(t)
}

// Both were asked for at once, and the answer to the first came last: to a process
// that was stopped meanwhile, and had lost its lock.
func TestCheck_tokenWhoseAnswerCameLate(t *testing.T) {
	t.Parallel()
	s := begin()
	s.fault(1, 20, 21)
	second := s.grant(2, 0, 30, 102)
	first := s.grant(1, 0, 200, 101)
	s.lost(1, first, 210)
	s.unlock(1, first, 220, 221, history.Failed)
	s.unlock(2, second, 300, 310, history.OK)
	s.requireGood(t)
}

func TestCheck_tokenThatIsLowerThanThatOfAnEarlierCall(t *testing.T) {
	t.Parallel()
	s := begin()
	first := s.grant(1, 0, 10, 102)
	s.unlock(1, first, 50, 60, history.Failed)
	second := s.grant(2, 70, 80, 101)
	s.unlock(2, second, 90, 95, history.Failed)
	s.requireBad(t, checker.Token, "h2.101 with token 101 came after h1.102")
}

// It waited while the other held, so that the calls say nothing; but it held in
// good order after it.
func TestCheck_tokenThatWasDrawnBeforeTheWait(t *testing.T) {
	t.Parallel()
	s := begin()
	first := s.grant(1, 10, 20, 102)
	s.unlock(1, first, 50, 60, history.OK)
	second := s.grant(2, 0, 61, 101)
	s.unlock(2, second, 90, 95, history.OK)
	s.requireBad(t, checker.Token, "h2.101 with token 101 came after h1.102")
}

func TestCheck_tokenThatIsIssuedTwice(t *testing.T) {
	t.Parallel()
	s := begin()
	first := s.grant(1, 10, 20, 101)
	s.unlock(1, first, 50, 60, history.OK)
	second := s.grant(2, 0, 61, 101)
	s.unlock(2, second, 90, 95, history.OK)
	s.requireBad(t, checker.Token, "both have token 101")
}

func TestCheck_tokenThatIsNotAboveTheMark(t *testing.T) {
	t.Parallel()
	s := begin()
	op := s.grant(1, 0, 10, 100)
	s.unlock(1, op, 50, 60, history.OK)
	s.requireBad(t, checker.Token, "the mark was 100 before")
}
