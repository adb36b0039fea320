package pgscript

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"
)

// statementsOf splits a script. What holds no statement at all, like the "-- ping"
// of pgx, is returned as the one that it is.
func statementsOf(script string) []string {
	var statements []string
	for _, part := range split(script, ';') {
		if withoutComments(part) != "" {
			statements = append(statements, strings.TrimSpace(part))
		}
	}
	if len(statements) == 0 {
		return []string{strings.TrimSpace(script)}
	}
	return statements
}

// opaque is what a separator doesn't count in.
var opaque = regexp.MustCompile(`^(?s:'(?:[^']|'')*'|"[^"]*"|--[^\n]*|/\*.*?\*/)`)

var dollarTag = regexp.MustCompile(`^\$(?:[A-Za-z_]\w*)?\$`)

// split cuts a text at each separator outside of quotes, comments and
// parentheses.
func split(text string, separator byte) []string {
	var parts []string
	begin, depth := 0, 0
	for i := 0; i < len(text); {
		if n := len(opaque.FindString(text[i:])); n > 0 {
			i += n
			continue
		}
		if tag := dollarTag.FindString(text[i:]); tag != "" {
			if end := strings.Index(text[i+len(tag):], tag); end >= 0 {
				i += end + 2*len(tag)
				continue
			}
		}
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case separator:
			if depth == 0 {
				parts = append(parts, text[begin:i])
				begin = i + 1
			}
		}
		i++
	}
	return append(parts, text[begin:])
}

var comment = regexp.MustCompile(`(?s:--[^\n]*|/\*.*?\*/)`)

func withoutComments(text string) string {
	return strings.TrimSpace(comment.ReplaceAllString(text, " "))
}

var (
	placeholder  = regexp.MustCompile(`\$(\d+)(?:\s*::\s*(?:pg_catalog\.)?([a-z_]\w*(?:\[\])?))?`)
	lockFunction = regexp.MustCompile(`advisory_(?:xact_)?(?:un)?lock\w*\(([^()]*)\)`)
)

// typeNames are SQL's own names of types, by PostgreSQL's.
var typeNames = map[string]string{"bigint": "int8", "int": "int4", "integer": "int4", "smallint": "int2", "boolean": "bool"}

// paramsOf returns the types of a statement's parameters: as the client has
// given them, as they are cast, as the lock functions take them, or else text.
func paramsOf(sql string, given []uint32) []uint32 {
	params := append([]uint32(nil), given...)
	set := func(number string, oid uint32) {
		n, _ := strconv.Atoi(number) // the patterns let only digits through
		for len(params) < n {
			params = append(params, 0)
		}
		if n > 0 && params[n-1] == 0 {
			params[n-1] = oid
		}
	}
	types := pgtype.NewMap()
	for _, match := range placeholder.FindAllStringSubmatch(sql, -1) {
		name := match[2]
		if element, isArray := strings.CutSuffix(name, "[]"); isArray {
			name = "_" + postgresName(element)
		}
		var oid uint32
		if typ, ok := types.TypeForName(postgresName(name)); ok {
			oid = typ.OID
		}
		set(match[1], oid)
	}
	for _, call := range lockFunction.FindAllStringSubmatch(sql, -1) {
		oid := uint32(pgtype.Int8OID)
		if strings.Contains(call[1], ",") {
			oid = pgtype.Int4OID
		}
		for _, match := range placeholder.FindAllStringSubmatch(call[1], -1) {
			set(match[1], oid)
		}
	}
	for i, oid := range params {
		if oid == 0 {
			params[i] = pgtype.TextOID
		}
	}
	return params
}

func postgresName(name string) string {
	if own, ok := typeNames[name]; ok {
		return own
	}
	return name
}
