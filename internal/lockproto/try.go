package lockproto

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// issueLimit is how long an Issue may wait in the database beyond the time for an answer;
// it bounds its own waits far below.
const issueLimit = time.Second

// What the try statement answers.
const (
	answerTrue    = "t"
	answerFalse   = "f"
	answerChanged = "changed"
	answerUnfit   = "unfit"
)

// Try takes all locks of r if they are free, or none of them. When ctx ends before the
// server has answered, Try returns an error that [IsAbandoned] recognizes, and Resume has
// to follow.
func (s *Session) Try(ctx context.Context, r *Request) (Answer, error) {
	s.application = applicationOf(s.hold)
	limit, params := s.config.AnswerTimeout, parametersOf(r.Targets, false, sessionName(r.Name, s.application))
	if !r.Issue.IsZero() {
		limit, params = limit+issueLimit, append(params, []byte(r.Issue.Hex()))
	}
	answer, err := s.hold.RoundTrip(ctx, limit, s.texts.try(s.hold, variantOf(r.Targets, r.Issue.Func)), params...)
	return s.readTry(r, answer, err)
}

// Resume waits for the answer to a Try of r that was abandoned.
func (s *Session) Resume(ctx context.Context, r *Request) (Answer, error) {
	answer, err := s.hold.Resume(ctx)
	return s.readTry(r, answer, err)
}

func (s *Session) readTry(r *Request, text string, err error) (Answer, error) {
	if err != nil {
		return Answer{}, err
	}
	switch text {
	case answerChanged:
		return Answer{Status: Changed}, nil
	case answerUnfit:
		s.texts.needsScript = true
		return Answer{Status: Unfit}, nil
	case answerFalse:
		return Answer{Status: Refused}, nil
	}
	answer := Answer{Status: Granted, Held: len(r.Targets)}
	switch {
	case !r.Issue.IsZero():
		if answer.Receipt, err = strconv.ParseInt(text, 10, 64); answer.Receipt <= 0 {
			answer.Status = Blocked
		}
	case text != answerTrue:
		err = errors.New("it is no truth value")
	}
	if err != nil {
		s.hold.MarkDirty()
		return Answer{}, wrongAnswer("the server's answer to a lock was %q: %w", text, err)
	}
	return answer, nil
}
