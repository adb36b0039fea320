package fencing_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// A verdict is what becomes of a write: it is done, or fails with a SQLSTATE.
type verdict string

const (
	ok   verdict = "ok"
	open verdict = "open" // done, whoever writes: there is no check
)

// claims are what a transaction may say that it is, and what becomes of a write
// that is checked in each of the three isolation levels.
var claims = map[string][3]verdict{
	"fresh":        {ok, ok, ok},
	"equal":        {ok, ok, ok}, // another transaction of the holder is open
	"stale":        {"LF001", "LF001", "LF001"},
	"overtaken":    {"LF001", "40001", "40001"}, // its snapshot is older than the newest token
	"unstamped":    {"LF002", "LF002", "LF002"},
	"ahead":        {"LF003", "LF003", "LF003"}, // above the newest token
	"other":        {"LF002", "LF002", "LF002"}, // holds something else
	"never locked": {"LF003", "LF003", "LF003"}, // of a resource that has no token yet
}

// sameAtEachLevel are those that are refused in the same way at each level, and are
// tried in one.
var sameAtEachLevel = []string{"other", "never locked"}

// cell is one write in the grid.
type cell struct {
	shape, write, claim string
	level               pgx.TxIsoLevel
}

func (c cell) verdict() verdict {
	if slices.Contains(shapes[c.shape].open, c.write) {
		return open
	}
	return claims[c.claim][slices.Index(levels, c.level)]
}

// Whoever writes, in whatever way, to whatever belongs to a guarded table.
func TestGuard_grid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := 0
	for _, shape := range slices.Sorted(maps.Keys(shapes)) {
		for _, level := range levels {
			n++
			schema := fmt.Sprintf("s%d", n)
			t.Run(fmt.Sprintf("%s, %s", shape, level), func(t *testing.T) {
				t.Parallel()
				g := newGrid(t, b, schema, shape)
				for _, write := range slices.Sorted(maps.Keys(writes)) {
					if b.db.Server.Version() < writes[write].since {
						t.Logf("%s: not applicable: the server is older", write)
						continue
					}
					for _, claim := range slices.Sorted(maps.Keys(claims)) {
						if level == pgx.ReadCommitted || !slices.Contains(sameAtEachLevel, claim) {
							g.check(t, cell{shape, write, claim, level})
						}
					}
				}
			})
		}
	}
}

// What is open is reported, and closed when the table is guarded once more.
func TestGuard_gridIsClosedByGuardingAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n, shape := range []string{"leaf attached later", "child added later", "leaf attached below later"} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			g := newGrid(t, b, fmt.Sprintf("s%d", n), shape)
			requireProblem(t, g.owner, g.schema+".x", "later: ", "SELECT fencing.guard('"+g.schema+".x', '"+g.resource+"')")
			require.NoError(t, fencing.Guard(t.Context(), g.owner, g.schema+".x", g.resource))
			g.requireClosed(t, shape)
		})
	}
}

// With the event trigger nothing is ever open.
func TestGuard_gridIsClosedByTheEventTrigger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, eventTriggerSQL)
	for n, shape := range []string{"leaf attached later", "child added later", "leaf attached below later"} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			newGrid(t, b, fmt.Sprintf("s%d", n), shape).requireClosed(t, shape)
		})
	}
}

const eventTriggerSQL = `CREATE EVENT TRIGGER fencing ON ddl_command_end
	WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE',
		'IMPORT FOREIGN SCHEMA', 'CREATE SCHEMA', 'CREATE TRIGGER', 'ALTER TRIGGER')
	EXECUTE FUNCTION fencing.on_ddl()`

// grid is one table of a shape in a schema of its own, guarded.
type grid struct {
	schema, resource string
	rows             string    // inserts the rows that are there before each write
	owner            *pgx.Conn // sets up and looks
	writer           *pgx.Conn // writes, finds the tables in its search_path
	peer             pgx.Tx    // another transaction of the holder
	current          fencing.Token
	before           string
}

func newGrid(t *testing.T, b *bundle, schema, shape string) *grid {
	t.Helper()
	g := &grid{schema: schema, resource: "the " + schema, rows: fmt.Sprintf(rowsSQL, shapes[shape].target), owner: b.db.Conn(t), writer: b.db.Conn(t)}
	_, err := g.owner.Exec(t.Context(), fmt.Sprintf(`CREATE SCHEMA %[1]s; SET search_path = %[1]s; CREATE TABLE peer (id int); %[2]s`,
		schema, shapes[shape].before))
	require.NoError(t, err)
	require.NoError(t, fencing.Guard(t.Context(), g.owner, "x", g.resource))
	require.NoError(t, fencing.Guard(t.Context(), g.owner, "peer", g.resource))
	_, err = g.owner.Exec(t.Context(), shapes[shape].after+`; `+fmt.Sprintf(aroundSQL, shapes[shape].target))
	require.NoError(t, err)
	_, err = g.writer.Exec(t.Context(), `SET search_path = `+schema+`; SET lock_timeout = '10s'`)
	require.NoError(t, err)
	_, err = g.owner.Exec(t.Context(), `SELECT pg_advisory_lock(hashtextextended($1, 0))`, g.resource)
	require.NoError(t, err)

	g.issue(t)
	g.issue(t) // so that there is a stale token
	g.restore(t)
	g.before = g.contents(t)
	return g
}

// issue makes the token that was current so far a stale one. The session has the
// resource's lock.
func (g *grid) issue(t *testing.T) {
	t.Helper()
	g.current = one[fencing.Token](t, g.owner, `SELECT fencing.issue($1)`, g.resource)
	require.Positive(t, g.current)
}

const gridContentsSQL = `SELECT coalesce(string_agg(tableoid::regclass || ': ' || x::text, ', ' ORDER BY id, tableoid), '') FROM x`

func (g *grid) contents(t *testing.T) string {
	t.Helper()
	return one[string](t, g.owner, gridContentsSQL)
}

// restore makes the rows what they were.
func (g *grid) restore(t *testing.T) {
	t.Helper()
	_, err := g.owner.Exec(t.Context(), fmt.Sprintf(`BEGIN; %s; DELETE FROM x; INSERT INTO parent VALUES (1), (2) ON CONFLICT DO NOTHING; %s; COMMIT`,
		g.stamp(g.resource, g.current), g.rows))
	require.NoError(t, err)
}

func (g *grid) stamp(resource string, token fencing.Token) string {
	return fmt.Sprintf(`SELECT fencing.stamp('%s', %d)`, resource, token)
}

// check does what a cell says, and looks whether it was done.
func (g *grid) check(t *testing.T, c cell) {
	t.Helper()
	want := c.verdict()
	stamp := g.claim(t, c.claim)
	var overtake func()
	if c.claim == "overtaken" {
		overtake = func() { g.issue(t) }
	}
	err := transact(t, g.writer, fmt.Sprintf(`BEGIN ISOLATION LEVEL %s; %s`, c.level, stamp), writes[c.write], shapes[c.shape].target, overtake)
	after := contentsAfter(t, g.writer)
	g.endClaim(t, c.claim)
	if err == nil {
		require.Contains(t, []verdict{ok, open}, want, "%v: was done", c)
		require.NotEqual(t, g.before, after, "%v: nothing was done", c)
		g.restore(t)
	} else {
		requireVerdict(t, want, err, c)
		require.Equal(t, g.before, after, "%v", c)
	}
}

// transact runs a transaction in as few messages as it takes. Between its begin
// and the write, overtake runs, if any.
func transact(t *testing.T, conn *pgx.Conn, begin string, w wayToWrite, target string, overtake func()) error {
	t.Helper()
	if w.data == "" && overtake == nil {
		_, err := conn.Exec(t.Context(), begin+`; `+fmt.Sprintf(w.sql, target)+`; COMMIT`)
		return err
	}
	_, err := conn.Exec(t.Context(), begin)
	require.NoError(t, err)
	if overtake != nil {
		overtake()
	}
	if err := w.run(t.Context(), conn, target); err != nil {
		return err
	}
	_, err = conn.Exec(t.Context(), `COMMIT`)
	return err
}

// contentsAfter ends a transaction that has failed, if there is one, and says
// what is in x.
func contentsAfter(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	end := ``
	if conn.PgConn().TxStatus() != 'I' {
		end = `ROLLBACK; `
	}
	results, err := conn.PgConn().Exec(t.Context(), end+gridContentsSQL).ReadAll()
	require.NoError(t, err)
	return string(results[len(results)-1].Rows[0][0])
}

// claim is how a transaction gets its stamps.
func (g *grid) claim(t *testing.T, claim string) string {
	t.Helper()
	switch claim {
	case "equal":
		g.peerWrites(t)
		return g.stamp(g.resource, g.current)
	case "fresh", "overtaken":
		return g.stamp(g.resource, g.current)
	case "stale":
		return g.stamp(g.resource, g.current-1)
	case "ahead":
		return g.stamp(g.resource, g.current+1<<20)
	case "other":
		return g.stamp(g.resource+" two", g.current)
	case "never locked":
		_, err := g.owner.Exec(t.Context(), `DELETE FROM fencing.resource WHERE name = $1`, g.resource)
		require.NoError(t, err)
		return g.stamp(g.resource, g.current)
	default:
		return `SELECT`
	}
}

// peerWrites leaves a transaction of the holder open that has written.
func (g *grid) peerWrites(t *testing.T) {
	t.Helper()
	tx, err := g.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), g.stamp(g.resource, g.current)+`; INSERT INTO peer VALUES (1)`)
	require.NoError(t, err)
	g.peer = tx
}

func (g *grid) endClaim(t *testing.T, claim string) {
	t.Helper()
	switch claim {
	case "equal":
		require.NoError(t, g.peer.Commit(t.Context()))
	case "never locked":
		g.issue(t)
	}
}

func requireVerdict(t *testing.T, want verdict, err error, c any) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr, "%v", c)
	require.Equal(t, string(want), pgErr.Code, "%v: %s", c, pgErr.Message)
}

// requireClosed checks what was open.
func (g *grid) requireClosed(t *testing.T, shape string) {
	t.Helper()
	report, err := fencing.Verify(t.Context(), g.owner)
	require.NoError(t, err)
	for _, table := range report.Tables {
		if strings.HasPrefix(table.Table, g.schema+".") {
			require.Empty(t, table.Problems)
		}
	}
	for _, write := range shapes[shape].open {
		for _, c := range []struct {
			stamp string
			want  verdict
		}{
			{g.stamp(g.resource, g.current-1), "LF001"},
			{`SELECT`, "LF002"},
			{g.stamp(g.resource, g.current+1<<20), "LF003"},
			{g.stamp(g.resource, g.current), ok},
		} {
			if writes[write].since > 0 && g.version(t) < writes[write].since {
				continue
			}
			err := pgx.BeginFunc(t.Context(), g.writer, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), c.stamp); err != nil {
					return err
				}
				return writes[write].run(t.Context(), g.writer, shapes[shape].target)
			})
			if c.want == ok {
				require.NoError(t, err, "%s", write)
				g.restore(t)
			} else {
				requireVerdict(t, c.want, err, write)
			}
			require.Equal(t, g.before, g.contents(t))
		}
	}
}

func (g *grid) version(t *testing.T) int {
	t.Helper()
	return one[int](t, g.owner, `SELECT current_setting('server_version_num')::int`)
}
