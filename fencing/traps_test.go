package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/traptest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// What the packages send, and what runs in the database for a superuser who writes,
// looks no name up where others could put something.
func TestPackages_runNothingOfOthers(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"in front": traptest.First, "fitting better": "public"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			traptest.Set(t, db)
			traptest.Exec(t, db, `CREATE TABLE public.exports (day text, fencing_token bigint);
				CREATE TABLE public.orders (tenant int, note text, fencing_token bigint) PARTITION BY LIST (tenant);
				CREATE TABLE public.orders1 PARTITION OF public.orders DEFAULT;
				CREATE TABLE public.moods (tenant public.mood, note text)`)
			pool := db.Pool(t, with("search_path", path))
			require.NoError(t, migrations.Up(t.Context(), pool))
			require.NoError(t, fencing.Guard(t.Context(), pool, "public.exports", "nightly"))
			require.NoError(t, fencing.GuardByPrefix(t.Context(), pool, "public.orders", "tenant", "tenant:"))
			require.NoError(t, fencing.GuardBy(t.Context(), pool, "public.moods", "tenant"))
			locker, err := advisory.New(pool, nil)
			require.NoError(t, err)
			fencer, err := fencing.New(locker, nil)
			require.NoError(t, err)
			for resource, statements := range map[string][]string{
				"nightly":  {`INSERT INTO public.exports VALUES ('x')`, `UPDATE public.exports SET day = 'y'`, `DELETE FROM public.exports`, `TRUNCATE public.exports`},
				"tenant:1": {`INSERT INTO public.orders VALUES (1, 'x')`, `UPDATE public.orders SET note = 'y'`, `DELETE FROM public.orders`},
				"good":     {`INSERT INTO public.moods VALUES ('good', 'x')`, `UPDATE public.moods SET note = 'y'`, `DELETE FROM public.moods`},
			} {
				lease, err := fencer.Lock(t.Context(), resource)
				require.NoError(t, err)
				for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
					for _, statement := range statements {
						require.NoError(t, lease.InTx(t.Context(), pool, func(tx pgx.Tx) error {
							_, err := tx.Exec(t.Context(), statement)
							return err
						}), statement)
						require.NoError(t, pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
							require.NoError(t, lease.Stamp(t.Context(), tx))
							_, err := tx.Exec(t.Context(), statement)
							return err
						}), statement)
						_, err := pool.Exec(t.Context(), statement)
						if resource == "nightly" { // a statement that writes no row needs no stamp elsewhere
							require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
						}
					}
				}
				held, err := advisory.Inspect(t.Context(), pool, advisory.Name(resource))
				require.NoError(t, err)
				require.Len(t, held, 1)
				require.NoError(t, lease.Unlock(t.Context()))
			}
			report, err := fencing.Verify(t.Context(), pool)
			require.NoError(t, err)
			require.True(t, report.OK(), "%+v", report)
			for _, table := range []string{"public.exports", "public.orders", "public.moods"} {
				require.NoError(t, fencing.Unguard(t.Context(), pool, table))
			}
			require.NoError(t, locker.Close(t.Context()))
			require.NoError(t, migrations.Down(t.Context(), pool))
			pool.Close()
			require.Empty(t, traptest.Fired(t, db))
		})
	}
}
