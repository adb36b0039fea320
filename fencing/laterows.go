package fencing

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lateRows are rows with which their batch ends.
type lateRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error // of the batch
	closed  bool
	failed  bool // before there was a row, so that nothing is known of them
}

func (r *lateRows) FieldDescriptions() []pgconn.FieldDescription {
	if r.failed {
		return nil
	}
	return r.Rows.FieldDescriptions()
}

func (r *lateRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *lateRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

func (r *lateRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

func (r *lateRows) Close() {
	r.Rows.Close()
	if !r.closed {
		r.closed = true
		r.err = r.results.Close()
	}
}

func (r *lateRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// lateRow is a row with which its batch ends.
type lateRow struct {
	pgx.Row
	results pgx.BatchResults
	err     error
}

func (r *lateRow) Scan(dest ...any) error {
	if r.results == nil {
		return r.err
	}
	err := r.Row.Scan(dest...)
	if closed := r.results.Close(); err == nil {
		err = closed
	}
	return err
}
