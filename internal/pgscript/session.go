package pgscript

import (
	"regexp"
	"strconv"
	"strings"
)

// A session is what answers where no handler does: one that gets each advisory
// lock it asks for. It counts the locks and does not tell them apart.
type session struct {
	number int
	status byte // of the transaction: I, T or E
	held   int
}

// pid is the number that the session reports as its process's.
func (s *session) pid() int32 { return int32(10000 + s.number) }

// follow notes what an answer, of a handler maybe, does to the transaction.
func (s *session) follow(a *Answer) {
	switch {
	case a.status != 0:
		s.status = a.status
	case a.failure != nil && s.status == 'T':
		s.status = 'E'
	case a.failure != nil:
	case a.tag == "BEGIN":
		s.status = 'T'
	case a.tag == "COMMIT", a.tag == "ROLLBACK":
		s.status = 'I'
	}
}

var firstWord = regexp.MustCompile(`^[A-Za-z]*`)

func (s *session) answer(q Query) *Answer {
	sql := withoutComments(q.SQL)
	word := strings.ToUpper(firstWord.FindString(sql))
	rest := sql[len(word):]
	if s.status == 'E' && word != "" && word != "ROLLBACK" && word != "ABORT" && word != "COMMIT" && word != "END" {
		return Fail("25P02", "current transaction is aborted, commands ignored until end of transaction block")
	}
	switch word {
	case "":
		return &Answer{} // an empty query
	case "SELECT":
		return s.selects(q, rest)
	case "BEGIN", "START":
		return Done("BEGIN")
	case "COMMIT", "END":
		if s.status == 'E' {
			return Done("ROLLBACK")
		}
		return Done("COMMIT")
	case "ROLLBACK", "ABORT":
		if strings.Contains(strings.ToUpper(rest), "TO ") {
			return Done("ROLLBACK").Status('T')
		}
		return Done("ROLLBACK")
	case "DISCARD", "DEALLOCATE":
		if word == "DISCARD" && !q.Describing {
			s.held = 0
		}
		return Done(strings.ToUpper(sql))
	case "DO":
		if strings.Contains(sql, "advisory_lock") && !q.Describing {
			s.held++
		}
		return Done(word)
	case "SET", "RESET", "LISTEN", "UNLISTEN", "NOTIFY", "SAVEPOINT", "RELEASE":
		return Done(word)
	default:
		return unanswerable(q.SQL)
	}
}

func unanswerable(sql string) *Answer { return Fail("0A000", "pgscript: no answer to: "+sql) }

func (s *session) selects(q Query, list string) *Answer {
	before := s.held
	var row []Value
	for _, expression := range split(list, ',') {
		v, ok := s.value(strings.TrimSpace(expression))
		if !ok {
			return unanswerable(q.SQL)
		}
		row = append(row, v)
	}
	if q.Describing {
		s.held = before
	}
	return Row(row...)
}

// tryReceipt is a CASE that has a number where the lock is granted.
var tryReceipt = regexp.MustCompile(`pg_try_advisory_\w+\([^()]*\) THEN`)

// value is what an expression yields, going by the first of these that it
// contains.
func (s *session) value(expression string) (v Value, ok bool) {
	has := func(part string) bool { return strings.Contains(expression, part) }
	clears := has("pg_advisory_unlock_all(")
	switch {
	case has("pg_try_advisory_"):
		if clears {
			s.held = 0
		}
		s.held++
		if tryReceipt.MatchString(expression) {
			return Int8(1), true
		}
		return Bool(true), true
	case has("pg_advisory_unlock("), has("pg_advisory_unlock_shared("):
		held := s.held > 0
		if s.held = max(s.held-1, 0); clears {
			s.held = 0
		}
		return Bool(held), true
	case clears:
		s.held = 0
		return Void(), true
	case has("pg_advisory_lock"), has("pg_advisory_xact_lock"):
		s.held++
		return Void(), true
	case has("pg_backend_pid()"):
		return Int4(s.pid()), true
	case has("pg_is_in_recovery()"):
		return Bool(false), true
	case has("version()"):
		return Text("PostgreSQL 18.0 (pgscript)"), true
	case strings.HasSuffix(expression, "::bigint END"):
		return Int8(1), true
	case has("set_config("), has("current_setting("):
		return Text(""), true
	}
	n, err := strconv.ParseInt(expression, 10, 32)
	return Int4(int32(n)), err == nil
}
