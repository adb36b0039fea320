package bench_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// BenchmarkFenced is a lock with a token whose commit is durable. Raw is a
// statement with the same lock, sequence and row, and none of the checks; the
// other one calls the function that Fencer calls.
func BenchmarkFenced(b *testing.B) {
	pg := startPostgres(b)
	p := pool(b, pg, 2)
	execute(b, p, "CREATE TABLE mark (name text PRIMARY KEY, mark bigint) WITH (fillfactor = 50)")
	execute(b, p, "CREATE SEQUENCE number")
	execute(b, p, "INSERT INTO mark VALUES ('raw', 0)")
	raw := func(lock string) cycle {
		return onPool(p, func(ctx context.Context, conn *pgxpool.Conn) error {
			var token int64
			if err := conn.QueryRow(ctx, lock, int64(7)).Scan(&token); err != nil {
				return err
			}
			return yes(ctx, conn, unlock, 7)
		})
	}
	run(b, "pgxpool-same-write", raw("UPDATE mark SET mark = nextval('number') WHERE name = 'raw' AND CASE WHEN pg_try_advisory_lock($1) THEN true ELSE false END RETURNING mark"))
	run(b, "Fencer", fenced(b, locker(b, pg, 2)))
	run(b, "Fencer-own-pool", fenced(b, ownLocker(b, pg)))
	run(b, "pgxpool-fencing.issue", onPool(p, func(ctx context.Context, conn *pgxpool.Conn) error {
		var token int64
		if err := conn.QueryRow(ctx, "SELECT CASE WHEN pg_try_advisory_lock(hashtextextended('bare', 0)) THEN fencing.issue('bare') END").Scan(&token); err != nil {
			return err
		}
		var ok bool
		return conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended('bare', 0))").Scan(&ok)
	}))
}

// writeVariants are what is between the writers and the rows. A network of half a millisecond
// is one that holds back for so long whatever is sent.
var writeVariants = []struct {
	name      string
	rows, n   int
	network   time.Duration
	isDurable bool
}{
	{"rows=1/writers=1", 1, 1, 0, true},
	{"rows=1000/writers=1", 1000, 1, 0, true},
	{"rows=1/writers=8", 1, 8, 0, true},
	{"rows=1/writers=1/network=0.5ms", 1, 1, 500 * time.Microsecond, true},
	{"rows=1/writers=1/durable=no", 1, 1, 0, false},
}

// BenchmarkWrite is a transaction that writes a row, or many, to a table that is
// guarded or not. Alone is the statement without BEGIN and COMMIT, as Exec is. The ways take
// turns, write by write: what slows the machine down slows all of them down.
func BenchmarkWrite(b *testing.B) {
	const turns = 150
	pg := startPostgres(b)
	lease := must(must(fencing.New(locker(b, pg, 2), nil))(b).TryLock(b.Context(), "exports"))(b)
	hows := []string{"unguarded", "unguarded-alone", "unguarded-two-statements", "guarded-InTx", "guarded-Exec"}
	for _, v := range writeVariants {
		wire := new(pgtest.Wire)
		p := pool(b, pg, 8, wire.On, func(c *pgxpool.Config) {
			if !v.isDurable {
				c.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
			}
		})
		var id atomic.Int64
		writes, times := map[string]func() error{}, map[string][]time.Duration{}
		for _, how := range hows {
			table := newTable(b, p, how)
			sql := "INSERT INTO " + table + " (id, note) VALUES ($1, 'note')"
			if v.rows > 1 {
				sql = fmt.Sprintf("INSERT INTO %s (id, note) SELECT $1 + g, 'note' FROM generate_series(1, %d) g", table, v.rows)
			}
			write := writeIn(how, p, lease, sql)
			writes[how] = func() error { return write(b.Context(), id.Add(1)*1000) }
			for range 8 { // each connection meets the statements
				check(b, atOnce(int(p.Config().MaxConns), writes[how]))
			}
		}
		wire.Delay(v.network)
		for range turns {
			for _, how := range hows {
				began := time.Now()
				check(b, atOnce(v.n, writes[how]))
				times[how] = append(times[how], time.Since(began)/time.Duration(v.n))
			}
		}
		wire.Delay(0)
		for _, how := range hows {
			b.Run(v.name+"/how="+how, func(b *testing.B) { reportQuantiles(b, times[how]) })
		}
	}
}

// writeIn is a way to execute a statement.
func writeIn(how string, p *pgxpool.Pool, lease *fencing.Lease, sql string) func(ctx context.Context, id int64) error {
	in := unguarded(p)
	switch how {
	case "unguarded-alone":
		return func(ctx context.Context, id int64) error { _, err := p.Exec(ctx, sql, id); return err }
	case "guarded-Exec":
		return func(ctx context.Context, id int64) error { _, err := lease.Exec(ctx, p, sql, id); return err }
	case "unguarded-two-statements": // as a stamp is one where it does not come with another
		in = stamped(p, "SELECT set_config('bench.stamp', '1', true)")
	case "guarded-InTx":
		in = guarded(p, lease)
	}
	return func(ctx context.Context, id int64) error {
		return in(ctx, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql, id)
			return err
		})
	}
}

// atOnce does something several times at once.
func atOnce(n int, do func() error) error {
	failed := make(chan error, n)
	for range n {
		go func() { failed <- do() }() // the loop below waits for it
	}
	var err error
	for range n {
		err = errors.Join(err, <-failed)
	}
	return err
}

// BenchmarkBulk is a million rows, by COPY, and all of them by one UPDATE. The rows
// are of a hundred resources, for the guard that asks.
func BenchmarkBulk(b *testing.B) {
	rows := 1000000
	if testing.Short() {
		rows /= 100
	}
	pg := startPostgres(b)
	p := pool(b, pg, 2)
	lease := must(must(fencing.New(locker(b, pg, 2), nil))(b).TryLock(b.Context(), "exports"))(b)
	var resources [100]string
	for i := range resources {
		resources[i] = fmt.Sprintf("r%d", i)
	}
	execute(b, p, "INSERT INTO fencing.resource (name, mark, epoch) SELECT 'r' || n, 1, fencing.epoch() FROM generate_series(0, 99) n")
	for _, how := range []string{"unguarded", "guarded", "guarded-by"} {
		inTx := unguarded(p)
		switch how {
		case "guarded":
			inTx = guarded(p, lease)
		case "guarded-by":
			inTx = stamped(p, "SELECT fencing.stamp(name, mark) FROM fencing.resource WHERE name <> 'exports'")
		}
		var table string
		load := func(b *testing.B) {
			b.Helper()
			check(b, inTx(b.Context(), func(tx pgx.Tx) error {
				_, err := tx.CopyFrom(b.Context(), pgx.Identifier{table}, []string{"id", "note"},
					pgx.CopyFromSlice(rows, func(i int) ([]any, error) { return []any{int64(i), resources[i%100]}, nil }))
				return err
			}))
		}
		b.Run("do=COPY/how="+how, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				table = newTable(b, p, how)
				execute(b, p, "CHECKPOINT")
				b.StartTimer()
				load(b)
			}
		})
		if table == "" {
			table = newTable(b, p, how)
			load(b)
		}
		b.Run("do=UPDATE/how="+how, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				execute(b, p, "VACUUM FULL "+table)
				execute(b, p, "CHECKPOINT")
				b.StartTimer()
				check(b, inTx(b.Context(), func(tx pgx.Tx) error {
					_, err := tx.Exec(b.Context(), "UPDATE "+table+" SET id = id + 1")
					return err
				}))
			}
		})
	}
}

// inTx runs a function in a transaction and commits.
type inTx func(context.Context, func(pgx.Tx) error) error

func unguarded(p *pgxpool.Pool) inTx {
	return func(ctx context.Context, fn func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, p, fn) }
}

func stamped(p *pgxpool.Pool, stamp string) inTx {
	return func(ctx context.Context, fn func(pgx.Tx) error) error {
		return pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, stamp); err != nil {
				return err
			}
			return fn(tx)
		})
	}
}

func guarded(p *pgxpool.Pool, lease *fencing.Lease) inTx {
	return func(ctx context.Context, fn func(pgx.Tx) error) error { return lease.InTx(ctx, p, fn) }
}

// newTable makes a table, which is guarded if it is called so.
func newTable(b *testing.B, p *pgxpool.Pool, how string) string {
	b.Helper()
	table := strings.ReplaceAll(how, "-", "_")
	execute(b, p, "DROP TABLE IF EXISTS "+table)
	execute(b, p, "CREATE TABLE "+table+" (id bigint, note text)")
	switch how {
	case "guarded", "guarded-InTx", "guarded-Exec":
		check(b, fencing.Guard(b.Context(), p, table, "exports"))
	case "guarded-by":
		check(b, fencing.GuardBy(b.Context(), p, table, "note"))
	}
	return table
}

func fenced(b *testing.B, l *advisory.Locker) cycle {
	b.Helper()
	f := must(fencing.New(l, nil))(b)
	return func(ctx context.Context, _ int64) error {
		lease, err := f.TryLock(ctx, "nightly")
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	}
}

func execute(b *testing.B, p *pgxpool.Pool, sql string) {
	b.Helper()
	_, err := p.Exec(b.Context(), sql)
	check(b, err)
}
