package fencing

import (
	"context"
	"errors"
)

// Observer is told of writes that the database has refused, for metrics. That of
// package otel is one.
type Observer interface {
	// Refused is called when [Lease.InTx], [Lease.Exec] or [Lease.SendBatch] is about
	// to return the refusal, from its goroutine and with its context; it must not
	// block.
	Refused(ctx context.Context, refusal Refusal)
}

// Refusal is a transaction that failed because a write of it was refused.
type Refusal struct {
	Lease *Lease
	Err   error // matches ErrStale, ErrUnstamped or ErrUnknownToken
}

// observe tells of err, if it is a refusal, and returns it.
func (l *Lease) observe(ctx context.Context, err error) error {
	if l.fencer == nil || l.fencer.config.Observer == nil {
		return err
	}
	for _, refusal := range []error{ErrStale, ErrUnstamped, ErrUnknownToken} {
		if errors.Is(err, refusal) {
			l.fencer.config.Observer.Refused(ctx, Refusal{Lease: l, Err: err})
			break
		}
	}
	return err
}
