package fencing

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Querier runs a query: a pool, a connection or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Report is what [Verify] found.
type Report struct {
	// Tables are the guarded ones, each with the partitions and children that
	// are guarded with it, and those that carry parts of a guard that nobody
	// asked for; ordered by name.
	Tables []TableReport
	// Problems are those of no table but of the installation: of the sequence,
	// the marks, the functions, the owners and privileges, the event trigger, and
	// that the database is a copy.
	Problems []Problem
	// Notes say what fencing can't promise on this server, although nothing is wrong
	// with the installation. OK doesn't count them.
	Notes []string
}

// TableReport is how one guard is.
type TableReport struct {
	Table    string // with its schema, quoted as SQL needs it; its last known name if it is gone
	Resource string // of [Guard], or empty
	Column   string // of [GuardBy], or empty
	Prefix   string // of [GuardByPrefix], or empty
	Problems []Problem
}

// Problem is one thing that is not as it should be.
type Problem struct {
	// What says what is wrong, in one line: for example "trigger fencing_guard of
	// public.exports is disabled". Where Fix is empty it also says what to do.
	What string
	// Fix is SQL that mends the problem as it stands, and changes nothing else. It
	// is empty where somebody has to decide. It can be several statements.
	Fix string
}

// OK reports whether there is no problem.
func (r *Report) OK() bool {
	for _, table := range r.Tables {
		if len(table.Problems) > 0 {
			return false
		}
	}
	return len(r.Problems) == 0
}

// Verify looks whether every guard is whole: whether each trigger of each
// guarded table, partition and child is there, unchanged and enabled, whether
// one was added that is not guarded, and whether the sequence and the marks are
// fit to issue tokens that only grow. It compares the functions, tables, owners and
// privileges of the schema with those of the installation. It finds what the owner
// of a table, or a superuser, has switched off; what was switched on again meanwhile
// leaves no trace, and who can replace Verify itself can have it say anything.
//
// A guarded table that was dropped is a problem too, because it may have been made
// again under another name: call [Unguard] before you drop one.
//
// It reads the catalogs and changes nothing. Every role that [the schema] was
// granted to may call it. ctx bounds it. The error is [ErrNotInstalled], or what
// pgx says; problems are no error. In SQL: SELECT * FROM fencing.verify().
//
// [the schema]: https://pkg.go.dev/github.com/pgadvisory/pgadvisory/migrations
func Verify(ctx context.Context, db Querier) (*Report, error) {
	if ctx == nil {
		return nil, fmt.Errorf("fencing: verify: %w", errNilContext)
	}
	rows, err := db.Query(ctx, verifySQL)
	if err != nil {
		return nil, fmt.Errorf("fencing: verify: %w", Translate(err))
	}
	report := &Report{}
	var t TableReport
	var p Problem
	_, err = pgx.ForEachRow(rows, []any{&t.Table, &t.Resource, &t.Column, &t.Prefix, &p.What, &p.Fix}, func() error {
		report.add(t, p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("fencing: verify: %w", Translate(err))
	}
	if rows, err = db.Query(ctx, notesSQL); err == nil {
		report.Notes, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("fencing: verify: %w", Translate(err))
	}
	if len(report.Notes) == 0 {
		report.Notes = nil
	}
	return report, nil
}

// add takes one row; those of a table follow each other.
func (r *Report) add(t TableReport, p Problem) {
	problems := &r.Problems
	if t.Table != "" {
		if n := len(r.Tables); n == 0 || r.Tables[n-1].Table != t.Table {
			r.Tables = append(r.Tables, t)
		}
		problems = &r.Tables[len(r.Tables)-1].Problems
	}
	if p.What != "" {
		*problems = append(*problems, p)
	}
}
