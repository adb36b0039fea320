//go:build unix

package pgadvisory_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgscript"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Cases 45, 47 and 51: a pooler that lends a backend for each transaction.
func TestLocker_refusesATransactionPooler(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	behind := *db
	behind.DSN = db.PgBouncer(t, "transaction", "default_pool_size = 2")
	// Nor would pgx's prepared statements work there.
	pool := behind.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec })
	locker, err := advisory.New(pool, nil)
	require.NoError(t, err)
	for range 20 {
		_, err = locker.TryLock(t.Context(), advisory.ID(7))
		require.ErrorIs(t, err, advisory.ErrPooler)
		_, err = locker.Lock(t.Context(), advisory.ID(7))
		require.ErrorIs(t, err, advisory.ErrPooler)
	}
	observer := db.Pool(t)
	all, err := advisory.Inspect(t.Context(), observer)
	require.NoError(t, err)
	require.Empty(t, all)

	// Within one transaction a lock is safe there.
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		err := advisory.LockTx(t.Context(), tx, advisory.ID(7))
		if err != nil {
			return err
		}
		all, err := advisory.Inspect(t.Context(), observer, advisory.ID(7))
		require.Len(t, all, 1)
		return err
	}))
	require.Less(t, free(t, observer), time.Second)
}

// Cases 119, 120 and 121: a standby grants locks of its own, until it is
// promoted, and then too.
func TestLocker_refusesAStandby(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	_, onPrimary := newLocker(t, pair.Primary, 2)
	_, onStandby := newLocker(t, pair.Standby, 2)
	held, err := onPrimary.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	for _, lock := range []func(context.Context, advisory.Key) (*advisory.Lock, error){onStandby.TryLock, onStandby.Lock, onStandby.RLock} {
		_, err := lock(t.Context(), advisory.ID(7))
		require.ErrorIs(t, err, advisory.ErrStandby)
		require.ErrorContains(t, err, "target_session_attrs=read-write")
	}
	all, err := advisory.Inspect(t.Context(), pair.Standby.Pool(t))
	require.NoError(t, err)
	require.Empty(t, all)

	// Both hosts, the standby first.
	config := pair.Primary.Pool(t).Config().ConnConfig
	standby := pair.Standby.Pool(t).Config().ConnConfig
	both := func(attributes string) *advisory.Locker {
		locker, err := advisory.Open(t.Context(), fmt.Sprintf("host=%s,%s port=%d,%d user=%s password='%s' dbname=%s sslmode=disable %s",
			standby.Host, config.Host, standby.Port, config.Port, config.User, config.Password, config.Database, attributes), nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
		return locker
	}
	_, err = both("").TryLock(t.Context(), advisory.ID(8))
	require.ErrorIs(t, err, advisory.ErrStandby)
	_, err = both("target_session_attrs=read-write").TryLock(t.Context(), advisory.ID(8))
	require.NoError(t, err)

	pair.Promote(t)
	_, err = onStandby.Lock(t.Context(), advisory.ID(7))
	require.NoError(t, err, "on the new primary")
	require.NoError(t, held.Err(), "and nobody tells the old one")
}

// Cases 98 and 99: the server has no room for the lock, or for the third of five.
func TestLocker_saysThatTheLockTableIsFull(t *testing.T) {
	t.Parallel()
	full := pgscript.Fail("53200", "out of shared memory")
	peer := pgscript.Serve(t, pgscript.On("pg_try_advisory_lock(", full), pgscript.On("$pgadvisory$", full))
	pool, err := pgxpool.New(t.Context(), peer.DSN())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	locker, err := advisory.New(pool, nil)
	require.NoError(t, err)
	for _, lock := range []func(context.Context, ...advisory.Key) (*advisory.Lock, error){locker.TryLockAll, locker.LockAll} {
		_, err := lock(t.Context(), advisory.ID(1), advisory.ID(2), advisory.ID(3))
		require.ErrorIs(t, err, advisory.ErrLockTableFull)
		_, err = lock(t.Context(), advisory.ID(1))
		require.ErrorIs(t, err, advisory.ErrLockTableFull)
	}
	require.Zero(t, pool.Stat().TotalConns(), "their sessions are ended")
	require.NoError(t, pool.Ping(t.Context()))
	require.NoError(t, locker.Close(t.Context()))
}

// librarySQL are the texts in which the library's SQL is: each string of its Go
// files, and its files of SQL.
func librarySQL(t *testing.T) map[string][]string {
	t.Helper()
	texts := map[string][]string{}
	for _, folder := range []string{"advisory", "fencing", "migrations", "internal/connhold", "internal/critical", "internal/grant", "internal/lockproto"} {
		require.NoError(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			switch {
			case err != nil || strings.HasSuffix(path, "_test.go"):
				return err
			case strings.HasSuffix(path, ".sql"):
				text, err := os.ReadFile(path)
				texts[path] = []string{string(text)}
				return err
			case strings.HasSuffix(path, ".go"):
				texts[path], err = stringsOf(path)
				return err
			}
			return nil
		}))
	}
	require.Contains(t, texts, "internal/lockproto/statement.go")
	return texts
}

var sqlComment = regexp.MustCompile(`--[^\n]*`)

func stringsOf(path string) ([]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []string
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING && err == nil {
			var text string
			text, err = strconv.Unquote(literal.Value)
			all = append(all, text)
		}
		return true
	})
	return all, err
}

var (
	lockCall  = regexp.MustCompile(`(?i)pg_(?:try_)?advisory_(?:xact_)?lock\w*`)
	clause    = regexp.MustCompile(`(?i)\b(?:SELECT|PERFORM|IF|FROM|WHERE|HAVING|JOIN|ON|USING|WITH|BY|LIMIT|RETURNING)\b|:=`)
	relations = regexp.MustCompile(`(?i)\b(?:FROM\s+[^\s]|JOIN\b|WITH\b|LIMIT\b)`)
	functions = regexp.MustCompile(`(?i)ROWS\s+FROM`)
)

// Cases 94 and 96: a lock is asked for in a target list or by a statement of
// plpgsql, and never where the planner decides how often, and for which rows, it
// is: in a condition, in a CTE, or next to a table.
func TestSQL_asksForLocksWhereNoPlanDecides(t *testing.T) {
	t.Parallel()
	found := 0
	for path, texts := range librarySQL(t) {
		for _, text := range texts {
			for statement := range strings.SplitSeq(sqlComment.ReplaceAllString(text, ""), ";") {
				for _, at := range lockCall.FindAllStringIndex(statement, -1) {
					found++
					if at[0] == 0 && at[1] == len(statement) {
						continue // a name, put together with SELECT elsewhere
					}
					clauses := clause.FindAllString(statement[:at[0]], -1)
					if len(clauses) == 0 && strings.HasPrefix(statement, "CASE WHEN ") {
						continue // an expression, put together with SELECT elsewhere
					}
					require.NotEmpty(t, clauses, "%s: %s", path, statement)
					require.Contains(t, []string{"SELECT", "PERFORM", "IF", ":="}, clauses[len(clauses)-1], "%s: %s", path, statement)
					require.NotRegexp(t, relations, functions.ReplaceAllString(statement, ""), path)
				}
			}
		}
	}
	require.Greater(t, found, 15)
}

// Case 109: no statement of the library ends or cancels a session by its number,
// and none of its code sends a cancel request.
func TestSQL_endsNoSessionByItsNumber(t *testing.T) {
	t.Parallel()
	for path, texts := range librarySQL(t) {
		for _, text := range texts {
			require.NotContains(t, text, "pg_cancel_backend", path)
			require.NotContains(t, text, "pg_terminate_backend", path)
		}
		code, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NotContains(t, string(code), "CancelRequest", path)
	}
}
