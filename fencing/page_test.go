package fencing_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

var sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")

// blocksOf are the SQL blocks of a page.
func blocksOf(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var blocks []string
	for _, match := range sqlBlock.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// blockWith is the one block that has a text.
func blockWith(t *testing.T, blocks []string, text string) string {
	t.Helper()
	var found []string
	for _, block := range blocks {
		if strings.Contains(block, text) {
			found = append(found, block)
		}
	}
	require.Len(t, found, 1, text)
	return found[0]
}

// A reader who has nothing but psql does what the page shows, from the guard to
// the copy.
func TestPage_ofPlainSQL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE public.exports (day date, fencing_token bigint); CREATE TABLE public.orders (id int, tenant text);
		CREATE TABLE public.invoices (id int, tenant text); CREATE TABLE public.other (day date)`)
	app := b.role(t)
	conn := b.db.Conn(t) // the session that locks
	blocks := blocksOf(t, "../docs/fencing.md")
	left := len(blocks)
	run := func(text string) (rows []string) {
		t.Helper()
		left--
		block := strings.ReplaceAll(blockWith(t, blocks, text), "'app'", "'"+app+"'")
		results, err := conn.PgConn().Exec(t.Context(), block).ReadAll()
		require.NoError(t, err, block)
		for _, result := range results {
			require.NoError(t, result.Err, block)
			for _, row := range result.Rows {
				rows = append(rows, string(row[0]))
			}
		}
		return rows
	}

	run("fencing.grant_to")
	run("fencing.guard_by")
	b.exec(t, `SELECT fencing.guard('public.exports', 'nightly-export')`) // the block ends with unguard
	run("CREATE EVENT TRIGGER")
	require.Equal(t, []string{"1"}, run("CASE WHEN pg_try_advisory_lock"))
	stamped := strings.ReplaceAll(blockWith(t, blocks, "fencing.stamp('nightly-export', 7)"), ", 7)", ", 1)")
	left--
	_, err := conn.PgConn().Exec(t.Context(), stamped).ReadAll()
	require.NoError(t, err)
	require.Equal(t, 1, one[int](t, conn, `SELECT count(*)::int FROM exports WHERE day = current_date AND fencing_token = 1`))
	require.Equal(t, []string{"1", ""}, run("fencing.issue_after"), "the mark, and no token, since it is not 41")
	require.Len(t, run("fencing.verify()"), 3+1+3, "three guards, one resource, three tables")

	// The table of SQLSTATEs, and what DETAIL looks like.
	_, err = conn.Exec(t.Context(), `SELECT fencing.issue('nightly-export')`) // the same session draws again
	require.NoError(t, err)
	for _, c := range []struct{ stamp, code, detail string }{
		{`SELECT fencing.stamp('nightly-export', 1)`, "LF001", `^token=1 current=2 resource="nightly-export" table="public.exports"$`},
		{`SELECT 1`, "LF002", ``},
		{`SELECT fencing.stamp('nightly-export', 3)`, "LF003", ``},
	} {
		_, err = conn.PgConn().Exec(t.Context(), `BEGIN; `+c.stamp+`; INSERT INTO exports (day) VALUES (current_date); COMMIT`).ReadAll()
		requireCode(t, err, c.code)
		requireDetail(t, err, c.detail)
		_, err = conn.Exec(t.Context(), `ROLLBACK`)
		require.NoError(t, err)
	}

	run("fencing.rebase()")
	_, err = conn.PgConn().Exec(t.Context(), `BEGIN; SELECT fencing.stamp('nightly-export', 2); INSERT INTO exports (day) VALUES (current_date); COMMIT`).ReadAll()
	requireCode(t, err, "LF001")
	require.Zero(t, left, "blocks of the page that nobody has run")
}

func requireDetail(t *testing.T, err error, pattern string) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Regexp(t, pattern, pgErr.Detail)
}

// A stamp without a third argument bounds the idle time by a minute.
func TestStamp_boundsTheIdleTimeByAMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	tx, err := b.observer.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.Equal(t, "1min", one[string](t, tx, fmt.Sprintf(
		`SELECT current_setting('idle_in_transaction_session_timeout') FROM (SELECT fencing.stamp('nightly', %d)) s`, lease.Token())))
}

// Every role can hold any advisory lock, and so keep others from locking and from
// writing. It is not let off more easily with less.
func TestAdvisoryLocks_areAnybodys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	nobody := b.as(t, b.role(t))
	holds, err := nobody.Acquire(t.Context())
	require.NoError(t, err)
	defer holds.Release()
	_, err = holds.Exec(t.Context(), `SELECT pg_advisory_lock(hashtextextended('nightly', 1))`)
	require.NoError(t, err)
	written := make(chan error, 1)
	go func() { written <- lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)) }()
	b.waitFor(t, "the writer waits", `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	_, err = holds.Exec(t.Context(), `SELECT pg_advisory_unlock(hashtextextended('nightly', 1))`)
	require.NoError(t, err)
	require.NoError(t, receive(t, written))
	require.NoError(t, lease.Unlock(t.Context()))

	_, err = holds.Exec(t.Context(), `SELECT pg_advisory_lock(hashtextextended('nightly', 0))`)
	require.NoError(t, err)
	_, err = b.fencer.TryLock(t.Context(), "nightly")
	require.Error(t, err)
	_, err = holds.Exec(t.Context(), `SELECT pg_advisory_unlock_all()`)
	require.NoError(t, err)
}

// A resource is not forgotten with its row, which only the schema's owner can
// delete: no token comes twice, also if the sequence was set back besides.
func TestResource_isNotForgottenWithItsRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old := b.lock(t, b.fencer, "nightly")
	require.NoError(t, old.Unlock(t.Context()))
	for i, sql := range []string{
		`DELETE FROM fencing.resource WHERE name = 'nightly'`,
		`DELETE FROM fencing.resource WHERE name = 'nightly'; SELECT setval('fencing.token', 1, false)`,
	} {
		b.exec(t, sql)
		require.Error(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
		next := b.lock(t, b.fencer, "nightly")
		require.NotEqual(t, next.Token(), old.Token())
		require.Error(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
		require.NoError(t, next.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3+i)))
		require.NoError(t, next.Unlock(t.Context()))
		old = next
	}
}
