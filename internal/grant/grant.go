// Package grant is how package fencing tells package advisory what else a
// grant must do.
package grant

import (
	"context"
	"encoding/hex"
	"fmt"
)

// Locks takes locks whose grant makes an Issue's receipt. Keys are of the type K, and
// locks of the type L.
type Locks[K, L any] interface {
	// TryLock and Lock are those of a Locker. They return the receipt besides.
	TryLock(ctx context.Context, key K, issue Issue) (lock L, receipt int64, err error)
	Lock(ctx context.Context, key K, issue Issue) (lock L, receipt int64, err error)
	// Lead is that of a Locker. Each term has a receipt of its own.
	Lead(ctx context.Context, key K, issue Issue, fn func(ctx context.Context, lock L, receipt int64) error) error
}

var locksOf func(locker any) any

// Register is for package advisory, which tells what the Locks of a Locker are. This
// package can't import it, and what takes an Issue is not for its users.
func Register(of func(locker any) any) { locksOf = of }

// LocksOf returns the Locks of a Locker.
func LocksOf[K, L any](locker any) Locks[K, L] { return locksOf(locker).(Locks[K, L]) }

// Issue is a call of an SQL function that takes one text and returns a bigint,
// made after the lock is granted, on the session that holds it, in the round
// trip that grants it.
//
// The function returns a positive receipt, which the caller of the lock gets.
// Where that can't be made yet without waiting for another transaction, it
// returns the PID of a session with such a transaction, negated, or 0 if there
// is no such session; it is then called again while the lock is kept. It bounds
// its own waits.
//
// The zero Issue is none.
type Issue struct {
	Func string // schema-qualified and fit to stand in SQL as it is
	Arg  string
}

// IsZero reports whether i asks for nothing.
func (i Issue) IsZero() bool { return i == Issue{} }

// SQL is the call as an SQL expression.
func (i Issue) SQL() string { return Call(i.Func, "'"+i.Hex()+"'") }

// Hex is the argument in hex, because how a string is read depends on settings of
// the session: its encoding, and how it quotes.
func (i Issue) Hex() string { return hex.EncodeToString([]byte(i.Arg)) }

// Call is a call of fn as an SQL expression; argument is one for that in hex.
func Call(fn, argument string) string {
	return fmt.Sprintf("%s(pg_catalog.convert_from(pg_catalog.decode(%s, 'hex'), 'UTF8'))", fn, argument)
}
