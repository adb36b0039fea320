package advisory_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// ways are all ways to a lock that is free. Those of a Session close it.
func (b *bundle) ways(ctx context.Context) map[string]func() error {
	key := advisory.Name("a 'name' \\ in quotes")
	unlock := func(lock *advisory.Lock, err error) error {
		if err != nil {
			return err
		}
		return lock.Unlock(ctx)
	}
	return map[string]func() error{
		"TryLock":    func() error { return unlock(b.locker.TryLock(ctx, key)) },
		"Lock":       func() error { return unlock(b.locker.Lock(ctx, key)) },
		"RLock":      func() error { return unlock(b.locker.RLock(ctx, key)) },
		"TryLockAll": func() error { return unlock(b.locker.TryLockAll(ctx, key, advisory.Pair(1, 2))) },
		"LockAll":    func() error { return unlock(b.locker.LockAll(ctx, key, advisory.Pair(1, 2))) },
		"TryAcquire": func() error { return unlock(b.locker.Semaphore("s", 2).TryAcquire(ctx)) },
		"Session": func() error {
			s, err := b.locker.Session(ctx)
			if err != nil {
				return err
			}
			if err := unlock(s.TryLock(ctx, key)); err != nil {
				return err
			}
			return s.Close(ctx)
		},
		"Tx": func() error {
			lock, err := b.locker.TryLock(ctx, key)
			if err != nil {
				return err
			}
			if err := lock.Tx(ctx, pgx.TxOptions{}, func(pgx.Tx) error { return nil }); err != nil {
				return err
			}
			return lock.Unlock(ctx)
		},
	}
}

// Pools that reset their connections by themselves, as if a pooler did it.
func TestLocker_afterAPoolHooksReset(t *testing.T) {
	t.Parallel()
	for _, reset := range []string{"DISCARD ALL", "DEALLOCATE ALL", "RESET ALL"} {
		run := func(ctx context.Context, conn *pgx.Conn) bool {
			_, err := conn.Exec(ctx, reset)
			return err == nil
		}
		for name, configure := range map[string]func(*pgxpool.Config){
			"after the release": func(c *pgxpool.Config) {
				c.AfterRelease = func(conn *pgx.Conn) bool { return run(context.Background(), conn) }
			},
			"before it is given out": func(c *pgxpool.Config) {
				c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return run(ctx, conn), nil }
			},
		} {
			t.Run(reset+" "+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t, maxConns(2), configure)
				for range 3 { // one connection, over and over
					for way, lock := range b.ways(t.Context()) {
						require.NoError(t, lock(), way)
					}
				}
				b.leakCheck(t)
			})
		}
	}
}

// A role's settings that decide how a string is read, how statements are sent, and
// what an error costs.
func TestLocker_underSettingsOfTheRole(t *testing.T) {
	t.Parallel()
	simple := func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }
	for name, settings := range map[string][]func(*pgxpool.Config){
		"standard_conforming_strings":                         {setting("standard_conforming_strings", "off")},
		"standard_conforming_strings and the simple protocol": {setting("standard_conforming_strings", "off"), simple},
		"exit_on_error":   {setting("exit_on_error", "on")},
		"all":             {setting("exit_on_error", "on"), setting("standard_conforming_strings", "off"), simple},
		"array_nulls":     {setting("array_nulls", "off")},
		"backslash_quote": {setting("backslash_quote", "off"), setting("escape_string_warning", "on")},
		"quote_all":       {setting("quote_all_identifiers", "on")},
		"bytea_output":    {setting("bytea_output", "escape")},
		"transform_null":  {setting("transform_null_equals", "on")},
		"plpgsql's":       {setting("plpgsql.extra_errors", "all"), setting("plpgsql.variable_conflict", "use_column")},
		"check_function":  {setting("check_function_bodies", "off"), setting("plan_cache_mode", "force_generic_plan")},
		"intervalstyle":   {setting("IntervalStyle", "sql_standard"), setting("DateStyle", "SQL, DMY")},
		"default_transaction": {
			setting("default_transaction_isolation", "serializable"), setting("default_transaction_read_only", "on"),
			setting("default_transaction_deferrable", "on"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, append(settings, maxConns(3))...)
			for range 2 {
				for way, lock := range b.ways(t.Context()) {
					require.NoError(t, lock(), way)
				}
			}

			holder := b.session(t)
			exec(t, holder, "SELECT pg_advisory_lock(7), pg_advisory_lock(8)")
			got := make(chan error, 2)
			var lock, all *advisory.Lock
			go func() {
				var err error
				lock, err = b.locker.Lock(t.Context(), advisory.ID(7))
				got <- err
			}()
			go func() {
				var err error
				all, err = b.locker.LockAll(t.Context(), advisory.ID(6), advisory.ID(8))
				got <- err
			}()
			var waiters []int
			b.eventually(t, "both wait on the server", func() bool {
				waiters = scan[[]int](t, b, "SELECT coalesce(array_agg(pid ORDER BY pid), '{}') "+advisoryLocks+" AND NOT granted")
				return len(waiters) == 2
			})
			b.eventually(t, "both have waited several times", func() bool {
				return scan[bool](t, b, "SELECT bool_and(now() - backend_start > '1 s') OR count(*) < 2 FROM pg_stat_activity WHERE pid = ANY ($1)", waiters)
			})
			exec(t, holder, "SELECT pg_advisory_unlock_all()")
			require.NoError(t, <-got)
			require.NoError(t, <-got)
			require.Equal(t, 3, b.granted(t))
			require.ElementsMatch(t, waiters, []int{int(lock.BackendPID()), int(all.BackendPID())}, "on the sessions that waited")
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, all.Unlock(t.Context()))
			b.leakCheck(t)
		})
	}
}
