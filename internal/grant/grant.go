// Package grant is how package fencing tells package advisory what else a
// grant must do.
package grant

import (
	"encoding/hex"
	"fmt"
)

// Issue is a call of an SQL function that takes one text and returns a bigint,
// made after the lock is granted, on the session that holds it, in the round
// trip that grants it.
//
// The function returns a positive receipt, which the caller of the lock gets,
// or 0 when it can't yet be made without waiting for another transaction; it
// is then called again while the lock is kept. It bounds its own waits.
//
// The zero Issue is none: the receipt is then 1.
type Issue struct {
	Func string // schema-qualified and fit to stand in SQL as it is
	Arg  string
}

// IsZero reports whether i asks for nothing.
func (i Issue) IsZero() bool { return i == Issue{} }

// Args are the arguments of the placeholder of Call.
func (i Issue) Args() []any {
	if i.IsZero() {
		return nil
	}
	return []any{i.Arg}
}

// Call is the call as an SQL expression whose argument is the given
// placeholder, such as $2.
func (i Issue) Call(placeholder string) string {
	if i.IsZero() {
		return "1::bigint"
	}
	return fmt.Sprintf("%s(%s::text)", i.Func, placeholder)
}

// Literal is the call as an SQL expression without placeholders. The argument
// is spelled in hex, because how a quoted string is read depends on settings
// of the session.
func (i Issue) Literal() string {
	if i.IsZero() {
		return "1::bigint"
	}
	return fmt.Sprintf("%s(convert_from(decode('%s', 'hex'), 'UTF8'))", i.Func, hex.EncodeToString([]byte(i.Arg)))
}
