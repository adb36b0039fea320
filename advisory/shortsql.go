package advisory

import (
	"fmt"
	"strconv"

	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// form is what the text of the short way's statements depends on.
type form struct {
	several      bool // locks, of whatever kind
	pair, shared bool
	issue        string // the function of an Issue
}

func formOf(targets []target, issue string) form {
	if len(targets) > 1 {
		return form{several: true, issue: issue}
	}
	return form{pair: targets[0].isPair(), shared: targets[0].shared, issue: issue}
}

// suffix is a part of the statement's name.
func (f form) suffix() string {
	suffix := ""
	for _, part := range []struct {
		is   bool
		name string
	}{{f.several, "several"}, {f.shared, "shared"}, {f.pair, "pair"}, {f.issue != "", f.issue}} {
		if part.is {
			suffix += "_" + part.name
		}
	}
	return suffix
}

// lockParameters are the parameters of the locks, to lock or to unlock them, and a
// text.
func lockParameters(targets []target, unlock bool, text string) [][]byte {
	if len(targets) > 1 {
		kinds, ids := parametersOf(rowsFor(targets, unlock))
		return [][]byte{kinds, ids, []byte(text)}
	}
	t := targets[0]
	if t.isPair() {
		return [][]byte{strconv.AppendInt(nil, int64(t.class()), 10), strconv.AppendInt(nil, int64(t.object()), 10), []byte(text)}
	}
	both := strconv.AppendInt(make([]byte, 0, 20+len(text)), t.id, 10)
	number := len(both)
	both = append(both, text...)
	return [][]byte{both[:number], both[number:]}
}

// text is the parameter after those of the locks, and argument the next one.
func (f form) text() string     { return f.parameter(1) }
func (f form) argument() string { return f.parameter(2) }

func (f form) parameter(n int) string {
	locks := 1
	if f.several || f.pair {
		locks = 2
	}
	return fmt.Sprintf("$%d::pg_catalog.text", locks+n)
}

// do is an SQL expression that tries all locks, or unlocks them, and is true if that
// was so for all.
func (f form) do(function string) string {
	if f.several {
		return rowsDone
	}
	t := target{shared: f.shared}
	if f.pair {
		t.space = pairSpace
	}
	return fmt.Sprintf("pg_catalog.%s%s(%s)", function, t.suffix(), t.placeholders())
}

// refused is what the lock statement answers when a lock is not granted. Of several
// the session may hold some then.
func (f form) refused() string {
	if f.several {
		return fmt.Sprintf("CASE WHEN %s THEN '%s' END", cleared, answerRefused)
	}
	return "'" + answerRefused + "'"
}

// granted is what the lock statement answers when the locks are granted.
func (f form) granted() string {
	if f.issue == "" {
		return "'" + answerGranted + "'"
	}
	return grant.Call(f.issue, f.argument()) + "::pg_catalog.text"
}

// tryText clears what other code may have left on a connection of the pool,
// because a lock that the session already holds would be granted once more; then
// it tries the locks, and with them applies the settings. The text parameter is the
// application_name, and the next one the argument of an Issue.
//
// An Issue writes in the transaction that is this statement; where the defaults
// for that are not what beginScript wants, a script is needed.
func (w *way) tryText(f form) string {
	lock := fmt.Sprintf("CASE WHEN %s THEN CASE WHEN %s AND %s THEN %s END ELSE %s END",
		f.do("pg_try_advisory_lock"), setName(f.text()), w.apply(), f.granted(), f.refused())
	if f.issue != "" {
		lock = fmt.Sprintf("CASE WHEN %s THEN %s ELSE '%s' END", w.fitForIssue(), lock, answerScript)
	}
	return fmt.Sprintf("SELECT CASE WHEN %s THEN CASE WHEN %s THEN %s ELSE '%s' END END",
		cleared, w.areAsBefore(), lock, answerChanged)
}

// fitForIssue is true in a transaction as beginScript makes it.
func (w *way) fitForIssue() string {
	is := func(name, value string) string {
		return fmt.Sprintf("pg_catalog.current_setting('%s') OPERATOR(pg_catalog.=) '%s'", name, value)
	}
	fit := is("transaction_isolation", "read committed") + " AND " + is("statement_timeout", "0")
	if w.major >= 17 {
		fit += " AND " + is("transaction_timeout", "0")
	}
	return fit
}

// unlockText is true when the session held the locks until now, holds nothing any
// more and has its settings back. The text parameter is the application_name.
func (w *way) unlockText(f form) string {
	return fmt.Sprintf("SELECT CASE WHEN %s THEN CASE WHEN %s THEN %s END ELSE false END",
		f.do("pg_advisory_unlock"), cleared, w.restore(f.text()))
}
