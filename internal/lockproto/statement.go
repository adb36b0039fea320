package lockproto

import (
	"fmt"
	"strconv"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/grant"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// texts are the statements of one session for one VanishTimeout, on which its settings
// depend. They belong to the session's info.
type texts struct {
	settings
	id     string // tells apart the statements of several Lockers
	tries  map[variant]*connhold.Statement
	frees  map[variant]*connhold.Statement
	polls  map[variant]*connhold.Statement
	begins string // begins a script

	areAsBefore string // an SQL condition
	afterBegin  string // SQL, in a transaction of the caller's
	fitForIssue string // an SQL condition
	needsScript bool   // an Issue needs a script
}

func newTexts(known *info, vanishTimeout time.Duration, each settings) *texts {
	t := &texts{
		settings: each, id: strconv.FormatInt(vanishTimeout.Milliseconds(), 10),
		tries: make(map[variant]*connhold.Statement), frees: make(map[variant]*connhold.Statement),
		polls:  make(map[variant]*connhold.Statement),
		begins: beginScript(known.major), fitForIssue: fitForIssue(known.major),
		areAsBefore: areAsBefore(known),
	}
	if millis, ok := checkInterval(known, vanishTimeout); ok {
		t.afterBegin = lookForClient(millis)
	}
	return t
}

func (t *texts) try(hold *connhold.Hold, v variant) *connhold.Statement {
	return statement(t.tries, hold, v, func() string { return t.name("lock", v) }, t.tryText)
}

func (t *texts) release(hold *connhold.Hold, v variant) *connhold.Statement {
	return statement(t.frees, hold, v, func() string { return t.name("unlock", v) }, t.releaseText)
}

func statement(known map[variant]*connhold.Statement, hold *connhold.Hold, v variant, name func() string, text func(variant) string) *connhold.Statement {
	s, ok := known[v]
	if !ok {
		s = hold.NewStatement(name(), text(v))
		known[v] = s
	}
	return s
}

func (t *texts) name(what string, v variant) string {
	return "pgadvisory_" + t.id + "_" + what + v.suffix()
}

// tryText clears what other code may have left on a connection of the pool, because the
// server would grant once more a lock that the session already holds. Then it tries the
// locks, and with them applies the settings. The text parameter is the application_name,
// and the next one the argument of an Issue.
//
// An Issue writes in the transaction that is this statement. Where the defaults for that
// are not those of beginScript, it needs a script.
func (t *texts) tryText(v variant) string {
	lock := fmt.Sprintf("CASE WHEN %s THEN CASE WHEN %s THEN %s END ELSE %s END",
		v.do("pg_try_advisory_lock"), t.apply(v.text()), v.granted(v.parameter(2)), v.refused())
	if v.issue != "" {
		lock = fmt.Sprintf("CASE WHEN %s THEN %s ELSE '%s' END", t.fitForIssue, lock, answerUnfit)
	}
	return fmt.Sprintf("SELECT CASE WHEN %s THEN CASE WHEN %s THEN %s ELSE '%s' END END",
		cleared, t.areAsBefore, lock, answerChanged)
}

// releaseText is true when the session held the locks until now. It holds nothing any
// more then and has its settings back. The text parameter is the application_name.
func (t *texts) releaseText(v variant) string {
	return fmt.Sprintf("SELECT CASE WHEN %s THEN CASE WHEN %s THEN %s END ELSE false END",
		v.do("pg_advisory_unlock"), cleared, t.restore(v.text()))
}

// clear releases what a session holds and puts its settings back, and the
// application_name.
func (t *texts) clear(application string) string {
	return fmt.Sprintf("SELECT CASE WHEN %s THEN %s END", cleared, t.restore(hexText(application)))
}

// fitForIssue is true in a transaction as beginScript makes it.
func fitForIssue(majorVersion int) string {
	fit := is("current_setting('transaction_isolation')", "'read committed'") + " AND " + is("current_setting('statement_timeout')", "'0'")
	if majorVersion >= 17 {
		fit += " AND " + is("current_setting('transaction_timeout')", "'0'")
	}
	return fit
}

// variant is what the text of a prepared statement depends on: no lock, one, which is
// spelled out because most locks are single, or several.
type variant struct {
	several      bool // or none
	pair, shared bool
	issue        string // the function of an Issue
}

func variantOf(targets []lockid.Target, issue string) variant {
	if len(targets) != 1 {
		return variant{several: true, issue: issue}
	}
	return variant{pair: targets[0].IsPair(), shared: targets[0].Shared, issue: issue}
}

// suffix is a part of the statement's name.
func (v variant) suffix() string {
	suffix := ""
	for _, part := range []struct {
		is   bool
		name string
	}{{v.several, "several"}, {v.shared, "shared"}, {v.pair, "pair"}, {v.issue != "", v.issue}} {
		if part.is {
			suffix += "_" + part.name
		}
	}
	return suffix
}

// parametersOf are the parameters of the locks, to take them or to free them, and a text.
func parametersOf(targets []lockid.Target, release bool, text string) [][]byte {
	if len(targets) != 1 {
		kinds, ids := arraysOf(RowsFor(targets, release))
		return [][]byte{kinds, ids, []byte(text)}
	}
	t := targets[0]
	if t.IsPair() {
		return [][]byte{strconv.AppendInt(nil, int64(t.Class()), 10), strconv.AppendInt(nil, int64(t.Object()), 10), []byte(text)}
	}
	both := strconv.AppendInt(make([]byte, 0, 20+len(text)), t.Number, 10)
	number := len(both)
	both = append(both, text...)
	return [][]byte{both[:number], both[number:]}
}

// text is the parameter after those of the locks.
func (v variant) text() string { return v.parameter(1) }

// parameter is the nth one after those of the locks.
func (v variant) parameter(n int) string {
	locks := 1
	if v.several || v.pair {
		locks = 2
	}
	return fmt.Sprintf("$%d::pg_catalog.text", locks+n)
}

// do is an SQL expression that calls function, or what corresponds to it, for all locks
// until one is false, and is true if none was.
func (v variant) do(function string) string {
	if v.several {
		return rowsDone
	}
	if v.shared {
		function += "_shared"
	}
	return "pg_catalog." + function + "(" + placeholders(v.pair) + ")"
}

func placeholders(pair bool) string {
	if pair {
		return "$1::int, $2::int"
	}
	return "$1::bigint"
}

// refused is what the try statement answers when a lock is not granted. Of several the
// session may hold some then.
func (v variant) refused() string {
	if v.several {
		return fmt.Sprintf("CASE WHEN %s THEN '%s' END", cleared, answerFalse)
	}
	return "'" + answerFalse + "'"
}

// granted is what a statement answers when the locks are granted. argument is that of an
// Issue.
func (v variant) granted(argument string) string {
	if v.issue == "" {
		return "'" + answerTrue + "'"
	}
	return grant.Call(v.issue, argument) + "::pg_catalog.text"
}
