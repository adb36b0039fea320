package fencing

import (
	"fmt"
	"strings"
)

// refused are the first words of statements that would end the transaction of the stamp, and
// leave what follows without one. COPY needs a conversation that a batch has not.
var refused = map[string]string{
	"ABORT": "", "BEGIN": "", "COMMIT": "", "END": "", "RELEASE": "", "ROLLBACK": "", "SAVEPOINT": "", "START": "",
	"PREPARE": "TRANSACTION", "COPY": "",
}

// refuseStatement returns an error if a text has no statement, or one that has no place in a
// batch. It reads SQL only as far as it must to find where statements begin. Where it is
// mistaken, the guards refuse what is not stamped.
func refuseStatement(sql string) error {
	found := false
	for rest := skipSpace(sql); rest != ""; rest = skipSpace(rest) {
		if rest[0] == ';' {
			rest = rest[1:]
			continue
		}
		found = true
		first := word(rest)
		second, isRefused := refused[first]
		if isRefused && (second == "" || word(skipSpace(rest[len(first):])) == second) {
			if first == "COPY" {
				return fmt.Errorf("COPY can't be sent in a batch: use Lease.InTx, and CopyFrom in it")
			}
			return fmt.Errorf("%s ends the transaction that is stamped, or begins another: use Lease.InTx for more than one statement",
				strings.TrimSpace(first+" "+second))
		}
		rest = skipStatement(rest)
	}
	if !found {
		return fmt.Errorf("there is no statement in %q", sql)
	}
	return nil
}

// word is the keyword at the beginning, in capitals, or "".
func word(sql string) string {
	n := strings.IndexFunc(sql, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '_' })
	if n < 0 {
		n = len(sql)
	}
	return strings.ToUpper(sql[:n])
}

// skipSpace skips white space and comments.
func skipSpace(sql string) string {
	for {
		sql = strings.TrimLeft(sql, " \t\n\r\f\v")
		switch {
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
		case strings.HasPrefix(sql, "/*"):
			sql = skipComment(sql)
		default:
			return sql
		}
	}
}

// skipComment skips a comment in which there may be others.
func skipComment(sql string) string {
	depth := 0
	for i := 0; i < len(sql); i++ {
		switch {
		case strings.HasPrefix(sql[i:], "/*"):
			depth++
			i++
		case strings.HasPrefix(sql[i:], "*/"):
			if depth--; depth == 0 {
				return sql[i+2:]
			}
			i++
		}
	}
	return ""
}

// skipStatement skips to the semicolon that ends a statement, past those in quotes.
func skipStatement(sql string) string {
	for i := 0; i < len(sql); i++ {
		var rest string
		switch c := sql[i]; {
		case c == ';':
			return sql[i:]
		case c == '\'' && i > 0 && (sql[i-1] == 'e' || sql[i-1] == 'E'):
			rest = skipEscaped(sql[i+1:])
		case c == '\'' || c == '"':
			_, rest, _ = strings.Cut(sql[i+1:], string(c)) // a doubled one begins another
		case c == '$':
			rest = skipDollars(sql[i:])
		case strings.HasPrefix(sql[i:], "--") || strings.HasPrefix(sql[i:], "/*"):
			rest = skipSpace(sql[i:])
		default:
			continue
		}
		i = len(sql) - len(rest) - 1
	}
	return ""
}

// skipEscaped skips to the end of a string in which a backslash escapes.
func skipEscaped(sql string) string {
	for i := 0; i < len(sql); i++ {
		switch sql[i] {
		case '\\':
			i++
		case '\'':
			return sql[i+1:]
		}
	}
	return ""
}

// skipDollars skips a string in dollar quotes, or a dollar that begins none.
func skipDollars(sql string) string {
	end := strings.IndexByte(sql[1:], '$')
	if end < 0 {
		return sql[1:]
	}
	tag := sql[:end+2]
	if strings.ContainsAny(tag, " \t\n\r,;()'\"") || len(tag) > 2 && tag[1] >= '0' && tag[1] <= '9' {
		return sql[1:] // $1
	}
	_, rest, _ := strings.Cut(sql[len(tag):], tag)
	return rest
}
