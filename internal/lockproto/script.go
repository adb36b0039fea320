package lockproto

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// Slice is how long one wait on the server lasts. It must stay well below
// deadlock_timeout, whose default is 1 s; where that is set lower, half of it is taken.
const Slice = 300 * time.Millisecond

// Progress is how far a session has come with a request before a Script.
type Progress struct {
	Configured bool // it has its name and its settings
	Held       int  // it holds the first so many locks
	Wait       bool // the script is to wait for a slice
	Waited     bool // it has waited before, or was parked
}

// script is what one round trip consists of where a single statement does not do: a wait,
// an Issue that needs a transaction of its own, a slot of a semaphore. It runs by the
// simple protocol: settings for the transaction, a block, and a row of two numbers.
type script struct {
	settings string // a list of SQL expressions that pass values to the block
	block    string
	result   string // two SQL expressions
}

func (s script) text(t *texts) string {
	return t.begins + "SELECT " + s.settings + "; " + s.block + "; SELECT " + s.result + "; COMMIT"
}

// scriptParked is the first number of a script that found all seats taken.
const scriptParked = -2

// scriptChanged is the first number of a script that has done nothing, because the
// settings are not as they were.
const scriptChanged = -1

// beginScript begins a transaction of the script's own, in read committed: an older
// snapshot must not fail what an Issue writes, whatever the role's default is. Until its
// end statement_timeout, and transaction_timeout where there is one, are out of force: a
// role's settings are meant for its queries and not for a wait for a lock. So is
// exit_on_error, which would end the session with each wait in vain, although the block
// catches that.
func beginScript(majorVersion int) string {
	text := "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; SET LOCAL search_path = pg_catalog, pg_temp; " +
		"SET LOCAL exit_on_error = off; "
	if majorVersion >= 17 {
		text += "SET LOCAL transaction_timeout = 0; "
	}
	return text
}

// Script goes on with r from where the session is.
func (s *Session) Script(ctx context.Context, r *Request, p Progress) (Answer, error) {
	if !p.Configured {
		s.application = applicationOf(s.hold)
	}
	limit, wait := s.config.AnswerTimeout, int64(0)
	if p.Wait {
		limit, wait = limit+Slice, Slice.Milliseconds()
	}
	if !r.Issue.IsZero() {
		limit += issueLimit
	}
	name := hexText(sessionName(r.Name, s.application))
	text, read := s.lockScript(r, p, wait, name), readLocks
	if r.Slots != nil {
		text, read = s.slotScript(r.Slots, wait, name), readSlot
	}
	var first, second *int64
	err := s.hold.Run(ctx, limit, func(ctx context.Context, conn *pgx.Conn) (err error) {
		first, second, err = runScript(ctx, conn, text.text(s.texts))
		return err
	})
	if err != nil {
		return Answer{}, err
	}
	if first != nil && *first == scriptChanged {
		return Answer{Status: Changed}, nil
	}
	return read(r, first, second), nil
}

// lockScript selects how many locks are held and, when these are all, the receipt. The
// text of the block is the same for all locks, and their numbers are constants of a
// SELECT, for the sake of pg_stat_statements.
//
// Somebody waits for what comes after the wait, so all that can be is done before: the
// settings are applied and the session has its name.
func (s *Session) lockScript(r *Request, p Progress, wait int64, name string) script {
	receipt := "1::bigint"
	if !r.Issue.IsZero() {
		receipt = fmt.Sprintf("CASE WHEN current_setting('pgadvisory.held') = '%d' THEN %s END", len(r.Targets), r.Issue.SQL())
	}
	held := fmt.Sprintf("'%d'", p.Held)
	if !p.Configured {
		held = fmt.Sprintf("CASE WHEN %s THEN CASE WHEN %s THEN %s END ELSE '%d' END",
			s.texts.areAsBefore, s.texts.apply(name), held, scriptChanged)
	}
	seat, seats := int32(0), 0
	if p.Wait && hasSeats(r) {
		seat, seats = r.Targets[0].Seat(), lockid.Seats-1
		if p.Waited {
			seats++
		}
	}
	return script{
		settings: fmt.Sprintf("set_config('pgadvisory.pairs', '%s', true), set_config('pgadvisory.shared', '%s', true), set_config('pgadvisory.ids', '%s', true), "+
			"set_config('pgadvisory.held', %s, true), set_config('pgadvisory.wait', '%d', true), "+
			"set_config('pgadvisory.seat', '%d', true), set_config('pgadvisory.seats', '%d', true)",
			array(r.Targets, func(t lockid.Target) string { return strconv.FormatBool(t.IsPair()) }),
			array(r.Targets, func(t lockid.Target) string { return strconv.FormatBool(t.Shared) }),
			array(r.Targets, func(t lockid.Target) string { return strconv.FormatInt(t.Number, 10) }),
			held, wait, seat, seats),
		block:  lockBlock,
		result: "current_setting('pgadvisory.held'), " + receipt,
	}
}

func readLocks(r *Request, held, receipt *int64) Answer {
	answer := Answer{Status: Waiting}
	if held != nil {
		answer.Held = int(*held)
	}
	if answer.Held == scriptParked {
		return Answer{Status: Parked}
	}
	if answer.Held < len(r.Targets) {
		return answer
	}
	answer.Status = Granted
	if !r.Issue.IsZero() {
		if receipt != nil {
			answer.Receipt = *receipt
		}
		if answer.Receipt <= 0 {
			answer.Status = Blocked
		}
	}
	return answer
}

// slotScript selects the slot's number, or NULL, and another limit that it met, or 0.
func (s *Session) slotScript(slots *Slots, wait int64, name string) script {
	ids := make([]string, len(slots.IDs))
	for i, id := range slots.IDs {
		ids[i] = strconv.FormatInt(id, 10)
	}
	return script{
		settings: fmt.Sprintf("set_config('pgadvisory.ids', '{%s}', true), set_config('pgadvisory.announcement', '%d', true), set_config('pgadvisory.wait', '%d', true)",
			strings.Join(ids, ","), slots.Announcement, wait),
		block: slotBlock,
		result: fmt.Sprintf("CASE WHEN current_setting('pgadvisory.slot') <> '' THEN CASE WHEN %s THEN CASE WHEN %s THEN current_setting('pgadvisory.slot')::bigint END ELSE CASE WHEN %s THEN %d END END END, "+
			"current_setting('pgadvisory.limit')::bigint", s.texts.areAsBefore, s.texts.apply(name), cleared, scriptChanged),
	}
}

func readSlot(_ *Request, slot, limit *int64) Answer {
	switch {
	case limit != nil && *limit != 0:
		return Answer{Status: Differs, Limit: int(*limit)}
	case slot == nil:
		return Answer{Status: Refused}
	default:
		return Answer{Status: Granted, Slot: int(*slot)}
	}
}

// runScript returns the two numbers that a script selects; nil is NULL.
func runScript(ctx context.Context, conn *pgx.Conn, text string) (first, second *int64, err error) {
	results, err := conn.PgConn().Exec(ctx, text).ReadAll()
	if err != nil {
		return nil, nil, err
	}
	if len(results) < 2 {
		return nil, nil, wrongAnswer("the server answered %d of the statements", len(results))
	}
	rows := results[len(results)-2].Rows // the last is COMMIT
	if len(rows) != 1 || len(rows[0]) != 2 {
		return nil, nil, wrongAnswer("the server answered with %d rows", len(rows))
	}
	var numbers [2]*int64
	for i, text := range rows[0] {
		if text == nil {
			continue
		}
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return nil, nil, wrongAnswer("the server's answer: %w", err)
		}
		numbers[i] = &n
	}
	return numbers[0], numbers[1], nil
}

func array(targets []lockid.Target, element func(lockid.Target) string) string {
	elements := make([]string, len(targets))
	for i, t := range targets {
		elements[i] = element(t)
	}
	return "{" + strings.Join(elements, ",") + "}"
}
