package lockproto

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// Hundreds of sessions that wait for one lock on the server, each in slices, would keep
// its processors busy. So a lock has a few seats, which are advisory locks too: a session
// waits on the server only while it has one. The others are parked: they ask now and then
// whether the lock, or a seat, is free. Who was parked before may take any seat, and who
// has just come all but the last one, so that those who come again and again don't keep
// the others out.
//
// Thirty-two places, which are advisory locks as well, make sure that a seat which gets
// free is soon taken: who has found one free looks often, and all others seldom.
//
// Only waits for a single lock in the exclusive mode are parked. Those in the shared mode
// are all granted at the same time.

// hasSeats reports whether r is a wait that can be parked.
func hasSeats(r *Request) bool {
	return r.Slots == nil && len(r.Targets) == 1 && !r.Targets[0].Shared
}

// What the poll statement answers when it has taken a seat, or a place.
const (
	answerSeat  = "seat"
	answerPlace = "place"
)

const (
	shortestPause    = 50 * time.Millisecond
	longestNearPause = 200 * time.Millisecond
	longestPause     = 5 * time.Second
)

// Pause is how long to wait until the next poll of a session that has waited for so long:
// a quarter of that, between 50 ms and 5 s, or 200 ms for one that is near. The jitter,
// from 0 to 1, adds or takes off up to a quarter.
func Pause(waited time.Duration, near bool, jitter float64) time.Duration {
	longest := longestPause
	if near {
		longest = longestNearPause
	}
	pause := min(max(waited/4, shortestPause), longest)
	return time.Duration(float64(pause) * (0.75 + jitter/2))
}

// RandomPause is Pause with a random jitter.
func RandomPause(waited time.Duration, near bool) time.Duration {
	return Pause(waited, near, rand.Float64())
}

// Poll asks a session that is parked for the lock of r, and for a seat.
func (s *Session) Poll(ctx context.Context, r *Request) (Answer, error) {
	seat := r.Targets[0].Seat()
	if !s.isNear { // else the place that it had, which is most likely free still
		s.place = rand.IntN(lockid.Places)
	}
	place := strconv.Itoa(int(seat) + s.place)
	limit, params := s.config.AnswerTimeout, append(parametersOf(r.Targets, false, strconv.Itoa(int(seat))), []byte(place))
	if !r.Issue.IsZero() {
		limit, params = limit+issueLimit, append(params, []byte(r.Issue.Hex()))
	}
	text, err := s.hold.RoundTrip(context.WithoutCancel(ctx), limit, s.texts.poll(s.hold, variantOf(r.Targets, r.Issue.Func)), params...)
	s.isNear = err == nil && text == answerPlace
	switch {
	case err == nil && text == answerUnfit: // what waits with a script takes a seat by itself
		s.texts.needsScript = true
		return Answer{Status: Seated}, nil
	case err == nil && text == answerSeat:
		return Answer{Status: Seated}, nil
	case s.isNear, err == nil && text == answerFalse:
		return Answer{Status: Parked, Near: s.isNear}, nil
	default:
		return s.readTry(r, text, err)
	}
}

func (t *texts) poll(hold *connhold.Hold, v variant) *connhold.Statement {
	return statement(t.polls, hold, v, func() string { return t.name("poll", v) }, t.pollText)
}

// pollText tries the lock, then the seats, then a place. The parameters after those of the
// lock are the objects of the first seat and of the place. As with a try, an Issue may
// need a script; who was parked before had none to find that out.
func (t *texts) pollText(v variant) string {
	seat := fmt.Sprintf("CASE WHEN pg_catalog.pg_try_advisory_lock(%d, %s::int) THEN '%s' ELSE '%s' END",
		lockid.PlaceClass, v.parameter(2), answerPlace, answerFalse)
	for i := range lockid.Seats {
		seat = fmt.Sprintf("CASE WHEN pg_catalog.pg_try_advisory_lock(%d, %s::int OPERATOR(pg_catalog.+) %d) THEN '%s' ELSE %s END",
			lockid.SeatClass, v.text(), i, answerSeat, seat)
	}
	lock := fmt.Sprintf("CASE WHEN %s THEN %s ELSE %s END", v.do("pg_try_advisory_lock"), v.granted(v.parameter(3)), seat)
	if v.issue != "" {
		lock = fmt.Sprintf("CASE WHEN %s THEN %s ELSE '%s' END", t.fitForIssue, lock, answerUnfit)
	}
	return fmt.Sprintf("SELECT CASE WHEN %s THEN %s END", cleared, lock)
}
