package lockview

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Row is one session, or prepared transaction, that holds a lock or waits for
// one. Its JSON is part of what pgadvisory promises.
type Row struct {
	Name        string   `json:"name,omitempty"`
	Slot        int      `json:"slot,omitempty"`  // of a semaphore, from 1
	Limit       int      `json:"limit,omitempty"` // of a semaphore
	Key         string   `json:"key"`
	Mode        string   `json:"mode"`
	State       string   `json:"state"` // held or waiting
	PID         uint32   `json:"pid,omitempty"`
	Prepared    string   `json:"prepared,omitempty"`
	BlockedBy   []uint32 `json:"blocked_by,omitempty"`
	User        string   `json:"user,omitempty"`
	Application string   `json:"application,omitempty"`
	Client      string   `json:"client,omitempty"`
	// Held is known where the holder tells it; HeldAtMost is the age of its
	// session.
	Held       *float64 `json:"held_seconds,omitempty"`
	HeldAtMost *float64 `json:"held_at_most_seconds,omitempty"`
	Waiting    *float64 `json:"waiting_seconds,omitempty"`

	// Status is what the row was made of.
	Status advisory.Status `json:"-"`
}

// The states of a row.
const (
	Held    = "held"
	Waiting = "waiting"
)

// Announces reports whether the row is of the lock by which a semaphore tells its
// limit; who holds a slot holds that too.
func (r Row) Announces() bool { return r.Limit > 0 && r.Slot == 0 }

// Querier is what Look needs of a pool.
type Querier interface {
	advisory.Querier
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Look returns who holds a lock and who waits for one. With names it is for these
// locks and semaphores, and otherwise for all of the database. waiter is the
// application_name of sessions that exist for one wait, so that its age is theirs.
func Look(ctx context.Context, db Querier, waiter string, names ...string) ([]Row, error) {
	all, err := inspect(ctx, db)
	if err != nil {
		return nil, err
	}
	resources, err := resourceNames(ctx, db)
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]bool)
	for _, name := range names {
		wanted[name] = true
	}
	// Names that were asked for win over others with the same number.
	labels := labelsOf(all, append(resources, names...))
	rows := []Row{}
	for _, s := range all {
		n, _ := numberOf(s.Key)
		l, known := labels[n]
		if len(names) == 0 || known && wanted[l.name] {
			rows = append(rows, rowOf(s, l, waiter))
		}
	}
	return rows, nil
}

const (
	// looks is how often Look looks, and between them it pauses.
	looks = 3
	pause = 20 * time.Millisecond
)

// inspect also finds waiters that pg_locks does not show. A waiter of package advisory
// re-queues three times a second and is in no queue for the moment between. inspect
// counts a session that waited at an earlier look, and holds nothing now, as waiting.
func inspect(ctx context.Context, db Querier) ([]advisory.Status, error) {
	type place struct {
		pid uint32
		key advisory.Key
	}
	var all []advisory.Status
	for i := range looks {
		now, err := advisory.Inspect(ctx, db)
		if err != nil {
			return nil, err
		}
		seen := make(map[place]bool, len(now))
		for _, s := range now {
			seen[place{s.PID, s.Key}] = true
		}
		for _, s := range all {
			if !s.Granted && !seen[place{s.PID, s.Key}] {
				now = insert(now, s)
			}
		}
		all = now
		if i+1 == looks || len(all) == 0 {
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// insert puts a waiter behind all others at its lock.
func insert(all []advisory.Status, waiter advisory.Status) []advisory.Status {
	for i, s := range slices.Backward(all) {
		if s.Key == waiter.Key {
			return slices.Insert(all, i+1, waiter)
		}
	}
	return append(all, waiter)
}

func rowOf(s advisory.Status, l label, waiter string) Row {
	row := Row{
		Name: l.name, Slot: l.slot, Limit: l.limit, Key: s.Key.String(), Mode: string(s.Mode), State: Waiting,
		PID: s.PID, Prepared: s.Prepared, BlockedBy: s.BlockedBy, User: s.User, Application: s.Application, Status: s,
	}
	if s.ClientAddr.IsValid() {
		row.Client = s.ClientAddr.String()
	}
	age := func(since time.Time) *float64 {
		if since.IsZero() {
			return nil
		}
		seconds := max(0, s.At.Sub(since).Seconds())
		return &seconds
	}
	t, tells := toldBy(s.Application)
	switch {
	case s.Granted && tells && !t.since.IsZero() && t.isFor(l.name):
		row.State, row.Held = Held, age(t.since)
	case s.Granted && s.Prepared != "":
		row.State, row.HeldAtMost = Held, age(s.StateChange)
	case s.Granted:
		row.State, row.HeldAtMost = Held, age(s.BackendStart)
	case (s.Application == waiter || strings.HasSuffix(s.Application, " of "+waiter)) && !s.BackendStart.IsZero():
		row.Waiting = age(s.BackendStart)
	default:
		row.Waiting = age(s.WaitStart)
	}
	return row
}

// maxResources bounds how many names of fencing are looked at.
const maxResources = 10000

// resourceNames are the names that fencing knows, where it is installed and can
// be read; its absence is no error. A view in its place would call functions of
// whoever made it, so only a table is read.
func resourceNames(ctx context.Context, db Querier) ([]string, error) {
	var readable bool
	err := db.QueryRow(ctx, `SELECT coalesce((SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
			AND pg_catalog.has_table_privilege(c.oid, 'SELECT') AND c.relkind OPERATOR(pg_catalog.=) 'r'
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
		WHERE n.nspname OPERATOR(pg_catalog.=) 'fencing' AND c.relname OPERATOR(pg_catalog.=) 'resource'), false)`).Scan(&readable)
	if err != nil || !readable {
		return nil, err
	}
	rows, err := db.Query(ctx, "SELECT name FROM ONLY fencing.resource LIMIT $1", maxResources)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Number is the number of a lock that has a name.
func (r Row) Number() int64 {
	n, _ := numberOf(r.Status.Key)
	return n
}
