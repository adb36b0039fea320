package connhold

import (
	"fmt"
	"runtime/debug"
)

// PanicError is the panic of a handler as an error: of one that the pool's owner
// has set, such as a tracer, OnNotice or PrepareConn, that of the statement during
// which it was called. It says nothing about the session.
type PanicError struct {
	Value any
	Stack []byte
}

// Error has the stack, as the panic would have printed it.
func (e *PanicError) Error() string {
	return fmt.Sprintf("a handler panicked: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Protect calls fn, during which handlers may be called, and returns the panic of
// one as a [PanicError].
func Protect(fn func() error) (err error) {
	defer recoverInto(&err)
	return fn()
}

// recoverInto is to be deferred.
func recoverInto(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{Value: v, Stack: debug.Stack()}
	}
}
