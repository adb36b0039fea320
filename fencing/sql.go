package fencing

import (
	"fmt"
	"strings"
)

// The functions of the schema fencing are in the migrations; this is how they
// are called.
const (
	issueFunc = "fencing.issue"

	markSQL       = `SELECT coalesce((SELECT pg_catalog.max(r.mark) FROM ONLY fencing.resource r WHERE r.name OPERATOR(pg_catalog.=) $1::pg_catalog.text COLLATE pg_catalog."C"), 0)`
	issueAfterSQL = "SELECT fencing.issue_after($1::pg_catalog.text, $2::bigint)"

	stampSQL   = "SELECT fencing.stamp($1::pg_catalog.text, $2::bigint, $3::interval)"
	guardSQL   = "SELECT fencing.guard($1::pg_catalog.text::pg_catalog.regclass, $2::pg_catalog.text)"
	guardBySQL = "SELECT fencing.guard_by($1::pg_catalog.text::pg_catalog.regclass, $2::pg_catalog.text::pg_catalog.name, $3::pg_catalog.text)"
	unguardSQL = "SELECT fencing.unguard($1::pg_catalog.text::pg_catalog.regclass)"
	verifySQL  = "SELECT coalesce(target, ''), coalesce(resource, ''), coalesce(by_column, ''), coalesce(prefix, ''), coalesce(problem, ''), coalesce(fix, '') " +
		"FROM fencing.verify() ORDER BY target, problem"
	notesSQL = "SELECT * FROM fencing.notes()"
)

// stampText does what fencing.stamp does, where that would refuse nothing: $1 is a JSON
// object with the token, as that function writes it, and $2 the limit, in a spelling that is one of a setting and
// one of an interval. It answers with no row, which is the cheapest.
const (
	stampName = "pgadvisory_stamp_2" // another text is to have another name
	stampText = `SELECT WHERE ` + setStamp + ` OPERATOR(pg_catalog.=)
	CASE WHEN pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0'
		OR pg_catalog.current_setting('idle_in_transaction_session_timeout')::pg_catalog.interval OPERATOR(pg_catalog.>) $2::pg_catalog.text::pg_catalog.interval
		THEN pg_catalog.set_config('idle_in_transaction_session_timeout', $2::pg_catalog.text, true) ELSE '' END`
)

// setStamp sets the stamp $1, beside those that the session has.
const setStamp = `pg_catalog.set_config('fencing.stamps',
		CASE WHEN coalesce(pg_catalog.current_setting('fencing.stamps', true), '') OPERATOR(pg_catalog.=) '' THEN $1::pg_catalog.text
		ELSE (pg_catalog.current_setting('fencing.stamps')::pg_catalog.jsonb OPERATOR(pg_catalog.||) $1::pg_catalog.jsonb)::pg_catalog.text END, true)`

const stampSettingSQL = `SELECT WHERE ` + setStamp + ` IS NULL`

// beginCalling begins a transaction and calls fencing.stamp.
func beginCalling(resource string, token Token, maxIdleMillis int64) string {
	return fmt.Sprintf("BEGIN; SELECT fencing.stamp(%s, '%d', '%d ms')", literal(resource), token, maxIdleMillis)
}

// beginExecuting begins a transaction and executes stampText.
func beginExecuting(resource string, token Token, maxIdleMillis int64) string {
	stamp := fmt.Sprintf("'{\n\"%s\":%d}'", resource, token)
	if !isPlain(resource) {
		stamp = fmt.Sprintf("pg_catalog.concat('{', pg_catalog.chr(10), pg_catalog.to_json(%s), ':%d}')", literal(resource), token)
	}
	return fmt.Sprintf("BEGIN; EXECUTE %s(%s, '%d ms')", stampName, stamp, maxIdleMillis)
}

// literal is a text in SQL, spelled so that no setting of the session decides how it
// is read.
func literal(text string) string {
	if isPlain(text) {
		return "'" + text + "'"
	}
	return fmt.Sprintf("pg_catalog.convert_from(pg_catalog.decode('%x', 'hex'), 'UTF8')", text)
}

// isPlain reports whether a text needs no escapes, neither in SQL nor in JSON.
func isPlain(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(" -_./:", rune(c)) {
			return false
		}
	}
	return true
}
