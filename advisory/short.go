package advisory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// The short way is that of one lock that is free: a prepared statement to lock
// and one to unlock. What the session's settings were is known from when it was
// met, so that the lock statement only has to look whether that is still true,
// and the unlock statement has it as constants. In a pool of the Locker's own,
// whose connections serve nobody else, they are set for good when it is met. Everything else, a wait, several
// locks, a lock that comes with an Issue, goes the long way: settings.apply and
// settings.restore have the server keep what was set before.

// shortWay are a session's statements of the short way. It belongs to the
// session's acquaintance.
type shortWay struct {
	all    settings
	names  []string // of those that the server knows
	values []string // to be set
	before []string // as they were
	id     string   // tells apart the statements of several Lockers
	try    map[form]*connhold.Statement
	free   map[form]*connhold.Statement

	major    int  // version of the server
	scripted bool // an Issue needs a script
}

// form is what the text of the statements depends on.
type form struct {
	pair, shared bool
	issue        string // the function of an Issue
}

func (t target) form(issue string) form {
	return form{pair: t.isPair(), shared: t.shared, issue: issue}
}

func newShortWay(known *acquaintance, vanishTimeout time.Duration) *shortWay {
	w := &shortWay{
		major: known.major, id: strconv.FormatInt(vanishTimeout.Milliseconds(), 10),
		try: make(map[form]*connhold.Statement), free: make(map[form]*connhold.Statement),
	}
	if known.own {
		return w
	}
	w.all = settingsFor(known, vanishTimeout)
	for i, name := range w.all.names {
		if at := slices.Index(allSettings, name); at < len(known.before) && known.before[at] != "" {
			w.names = append(w.names, name)
			w.values = append(w.values, w.all.values[i])
			w.before = append(w.before, known.before[at])
		}
	}
	return w
}

// What the lock statement answers.
const (
	answerGranted = "t"
	answerRefused = "f"
	answerChanged = "changed" // nothing was done, the settings are not as they were
	answerScript  = "script"  // nothing was done, the Issue needs a transaction with other settings
)

// tryText clears what other code may have left on a connection of the pool,
// because a lock that the session already holds would be granted once more; then
// it tries the lock, and with it applies the settings. The parameter after
// the lock's is the application_name, and the next one the argument of an Issue.
//
// An Issue writes in the transaction that is this statement; where the defaults
// for that are not what beginScript wants, a script is needed.
func (w *shortWay) tryText(t target, issue string) string {
	set, same := []string{notNull(setConfig("application_name", lastParameter(t)))}, []string{"true"}
	for i, name := range w.names {
		same = append(same, fmt.Sprintf("pg_catalog.current_setting('%s') OPERATOR(pg_catalog.=) %s", name, literal(w.before[i])))
		set = append(set, notNull(setConfig(name, literal(w.values[i]))))
	}
	lock := fmt.Sprintf("CASE WHEN pg_catalog.pg_try_advisory_lock%s(%s) THEN CASE WHEN %s THEN %s END ELSE '%s' END",
		t.suffix(), t.placeholders(), strings.Join(set, " AND "), granted(t, issue), answerRefused)
	if issue != "" {
		lock = fmt.Sprintf("CASE WHEN %s THEN %s ELSE '%s' END", w.fitForIssue(), lock, answerScript)
	}
	return fmt.Sprintf("SELECT CASE WHEN %s THEN CASE WHEN %s THEN %s ELSE '%s' END END",
		cleared, strings.Join(same, " AND "), lock, answerChanged)
}

// granted is what the lock statement answers when the lock is granted.
func granted(t target, issue string) string {
	switch {
	case issue == "":
		return "'" + answerGranted + "'"
	case t.isPair():
		return grant.Call(issue, "$4::pg_catalog.text") + "::pg_catalog.text"
	default:
		return grant.Call(issue, "$3::pg_catalog.text") + "::pg_catalog.text"
	}
}

// fitForIssue is true in a transaction as beginScript makes it.
func (w *shortWay) fitForIssue() string {
	is := func(name, value string) string {
		return fmt.Sprintf("pg_catalog.current_setting('%s') OPERATOR(pg_catalog.=) '%s'", name, value)
	}
	fit := is("transaction_isolation", "read committed") + " AND " + is("statement_timeout", "0")
	if w.major >= 17 {
		fit += " AND " + is("transaction_timeout", "0")
	}
	return fit
}

// unlockText is true when the session held the lock until now, holds nothing any
// more and has its settings back. The last parameter is the application_name.
func (w *shortWay) unlockText(t target) string {
	return fmt.Sprintf("SELECT CASE WHEN pg_catalog.pg_advisory_unlock%s(%s) THEN CASE WHEN %s THEN %s END ELSE false END",
		t.suffix(), t.placeholders(), cleared, w.restore(lastParameter(t)))
}

// restore is an SQL expression that puts all back and is true; application is one
// for the application_name.
func (w *shortWay) restore(application string) string {
	set := []string{notNull(setConfig("application_name", application))}
	for i, name := range w.names {
		set = append(set, notNull(setConfig(name, literal(w.before[i]))))
	}
	return "(" + strings.Join(set, " AND ") + ")"
}

// literal is a value of a setting in SQL.
func literal(value string) string {
	for _, c := range []byte(value) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return hexText(value)
		}
	}
	return "'" + value + "'"
}

func notNull(expression string) string { return expression + " IS NOT NULL" }

func lastParameter(t target) string {
	if t.isPair() {
		return "$3::pg_catalog.text"
	}
	return "$2::pg_catalog.text"
}

// parameters are the lock's numbers and a text.
func (t target) parameters(name string) [][]byte {
	if t.isPair() {
		return [][]byte{strconv.AppendInt(nil, int64(t.class()), 10), strconv.AppendInt(nil, int64(t.object()), 10), []byte(name)}
	}
	text := strconv.AppendInt(make([]byte, 0, 20+len(name)), t.id, 10)
	number := len(text)
	text = append(text, name...)
	return [][]byte{text[:number], text[number:]}
}

func (w *shortWay) tryStatement(hold *connhold.Hold, t target, issue string) *connhold.Statement {
	s, ok := w.try[t.form(issue)]
	if !ok {
		what := "lock"
		if issue != "" {
			what = "issue_" + issue
		}
		s = hold.NewStatement(w.statementName(what, t), w.tryText(t, issue))
		w.try[t.form(issue)] = s
	}
	return s
}

func (w *shortWay) unlockStatement(hold *connhold.Hold, t target) *connhold.Statement {
	s, ok := w.free[t.form("")]
	if !ok {
		s = hold.NewStatement(w.statementName("unlock", t), w.unlockText(t))
		w.free[t.form("")] = s
	}
	return s
}

func (w *shortWay) statementName(what string, t target) string {
	name := "pgadvisory_" + w.id + "_" + what + t.suffix()
	if t.isPair() {
		name += "_pair"
	}
	return name
}

// goesShort reports whether the short way is the one to ask.
func (c *contest) goesShort(r *request, wait bool) bool {
	return !wait && len(r.targets) == 1 && r.slots == nil && (r.issue.IsZero() || !c.short.scripted)
}

// try goes the short way, or on where it was left. It returns connhold.ErrLeft
// when ctx ends before the server has answered.
func (c *contest) try(ctx context.Context, l *Locker, r request) error {
	c.shared = r.targets[0].shared
	var answer string
	var err error
	if c.left {
		answer, err = c.hold.Resume(ctx)
	} else {
		c.session.application = c.hold.ParameterStatus("application_name")
		name := sessionName(labels(r.keys), c.session.application)
		limit, params := l.config.HeartbeatTimeout, r.targets[0].parameters(name)
		if !r.issue.IsZero() {
			limit, params = limit+issueLimit, append(params, []byte(r.issue.Hex()))
		}
		answer, err = c.hold.Ask(ctx, limit, c.short.tryStatement(c.hold, r.targets[0], r.issue.Func), params...)
	}
	c.left = errors.Is(err, connhold.ErrLeft)
	if err != nil {
		return err
	}
	switch answer {
	case answerChanged:
		return c.meetAnew()
	case answerScript: // there is no answer yet
		c.short.scripted = true
		return connhold.ErrLeft
	}
	return c.answered(answer, r.issue)
}

// answered notes what the server has said.
func (c *contest) answered(answer string, issue grant.Issue) (err error) {
	switch {
	case answer == answerRefused:
	case issue.IsZero() && answer == answerGranted:
		c.granted = true
	case issue.IsZero():
		err = errors.New("it is no truth value")
	default:
		c.granted, c.issue = true, issue
		c.receipt, err = strconv.ParseInt(answer, 10, 64)
	}
	c.asked = true
	if err != nil {
		c.hold.Taint()
		return fmt.Errorf("the server's answer to a lock was %q: %w", answer, err)
	}
	if c.granted {
		c.applied, c.session.short = true, c.short
	}
	c.stale, c.changed = 0, false
	return nil
}

// unlock reports whether the session held the lock.
func (w *shortWay) unlock(ctx context.Context, hold *connhold.Hold, limit time.Duration, t target, application string) (owned bool, err error) {
	answer, err := hold.Ask(context.WithoutCancel(ctx), limit, w.unlockStatement(hold, t), t.parameters(application)...)
	return answer == answerGranted, err
}

// meetAnew is for a session whose settings other code has changed since it was
// met. It is as if it had not been asked.
func (c *contest) meetAnew() error {
	if c.changed {
		c.hold.Taint()
		c.asked = true
		return errors.New("the settings of the session change while nobody uses it")
	}
	forget(c.hold)
	c.changed, c.known = true, nil
	return nil
}
