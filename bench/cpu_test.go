package bench_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// BenchmarkBackendCPU is what a statement costs the server, without a client and without a
// commit: a loop in the server runs it, and Linux tells for how long the backend had a
// processor. What else the machine does matters little to that.
func BenchmarkBackendCPU(b *testing.B) {
	pg := startPostgres(b)
	p := pool(b, pg, 2)
	execute(b, p, `INSERT INTO fencing.resource (name, mark, epoch) SELECT 'r' || n, 1, fencing.epoch() FROM generate_series(1, 1000) n`)
	execute(b, p, `CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`)
	for _, table := range []string{"bare", "empty_trigger", "guarded", "guarded_by"} {
		execute(b, p, fmt.Sprintf(`CREATE TABLE %s (id bigint, note text)`, table))
	}
	execute(b, p, `CREATE TRIGGER nothing BEFORE INSERT ON empty_trigger FOR EACH STATEMENT EXECUTE FUNCTION nothing()`)
	check(b, fencing.Guard(b.Context(), p, "guarded", "r7"))
	check(b, fencing.GuardBy(b.Context(), p, "guarded_by", "note"))
	const (
		one      = `SELECT fencing.stamp('r7', 1)`
		thousand = `SELECT fencing.stamp(name, mark) FROM fencing.resource`
	)
	measureCPU(b, p, "insert", ``, `INSERT INTO bare VALUES (i, 'r7')`, 1)
	measureCPU(b, p, "empty-trigger", ``, `INSERT INTO empty_trigger VALUES (i, 'r7')`, 1)
	measureCPU(b, p, "guarded", one, `INSERT INTO guarded VALUES (i, 'r7')`, 1)
	measureCPU(b, p, "guarded-by", one, `INSERT INTO guarded_by VALUES (i, 'r7')`, 1)
	measureCPU(b, p, "guarded-by-1000-stamps", thousand, `INSERT INTO guarded_by VALUES (i, 'r' || 1 + i % 1000)`, 1)
	measureCPU(b, p, "guarded-by-1000-resources", thousand, `INSERT INTO guarded_by SELECT i, 'r' || q FROM generate_series(1, 1000) q`, 1000)
	measureCPU(b, p, "stamp-1000-and-write", ``,
		thousand+`; INSERT INTO guarded_by SELECT i, 'r' || q FROM generate_series(1, 1000) q; PERFORM set_config('fencing.stamps', '', true)`, 1000)
}

// measureCPU runs a statement as often as the benchmark says, or less often by a factor, in one
// transaction, which is rolled back.
func measureCPU(b *testing.B, p *pgxpool.Pool, how, first, statement string, less int) {
	b.Helper()
	b.Run("how="+how, func(b *testing.B) {
		n := max(1, b.N/less)
		tx := must(p.Begin(b.Context()))(b)
		defer func() { check(b, tx.Rollback(b.Context())) }()
		do := func(sql string) {
			_, err := tx.Exec(b.Context(), sql)
			check(b, err)
		}
		if first != "" {
			do(first)
		}
		loop := func(n int) string {
			return fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP %s; END LOOP; END $$`, n, strings.ReplaceAll(statement, "SELECT fencing.", "PERFORM fencing."))
		}
		do(loop(1))
		var best int64
		for range 5 {
			before := cpuTime(b, tx.Conn().PgConn().PID())
			do(loop((n + 4) / 5))
			if spent := cpuTime(b, tx.Conn().PgConn().PID()) - before; best == 0 || spent < best {
				best = spent
			}
		}
		b.ReportMetric(float64(best)/float64((n+4)/5), "cpu-ns/op")
		b.ReportMetric(0, "ns/op")
	})
}

// cpuTime is for how many nanoseconds a process has had a processor.
func cpuTime(b *testing.B, pid uint32) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		b.Skip("the server is on another machine, or this is not Linux: ", err)
	}
	first, _, _ := strings.Cut(string(text), " ")
	return must(strconv.ParseInt(first, 10, 64))(b)
}
