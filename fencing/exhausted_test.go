package fencing_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

const fullSQL = `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
	CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON fencing.resource FOR EACH ROW EXECUTE FUNCTION full_disk()`

// Whatever asks for a token gives the lock back, and says why.
func TestFencer_givesTheLockBackWhenNothingCanBeIssued(t *testing.T) {
	t.Parallel()
	never := func(context.Context, *fencing.Lease) error { panic("not reached") }
	for name, c := range map[string]struct{ how, repair, code string }{
		"disk full":          {fullSQL, `DROP TRIGGER full_disk ON fencing.resource`, "53100"},
		"sequence exhausted": {`SELECT setval('fencing.token', 9007199254740991)`, `SELECT setval('fencing.token', 1, false)`, "2200H"},
	} {
		for how, lock := range map[string]func(context.Context, *fencing.Fencer) error{
			"Do":    func(ctx context.Context, f *fencing.Fencer) error { return f.Do(ctx, "nightly", never) },
			"TryDo": func(ctx context.Context, f *fencing.Fencer) error { return f.TryDo(ctx, "nightly", never) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.guarded(t, "exports", "nightly")
				old := b.lock(t, b.fencer, "nightly")
				require.NoError(t, old.Unlock(t.Context()))
				b.exec(t, c.how)
				requireCode(t, lock(t.Context(), b.fencer), c.code)
				b.waitForNoLock(t)
				require.Equal(t, old.Token(), b.mark(t, "nightly"))

				b.exec(t, c.repair)
				lease := b.lock(t, b.fencer, "nightly")
				require.Greater(t, lease.Token(), old.Token())
				require.NoError(t, lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
				require.ErrorIs(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4)), fencing.ErrStale)
			})
		}
	}
}

// A leader that can't get a token leads as soon as it can.
func TestLead_goesOnOnceTokensCanBeIssuedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, fullSQL)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	result := make(chan error, 1)
	// Ends with Lead; the test receives its result.
	go func() {
		result <- b.fencer.Lead(ctx, "nightly", func(context.Context, *fencing.Lease) error { return context.Canceled })
	}()
	b.waitFor(t, "it has tried", `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_database WHERE datname = current_database() AND xact_rollback > 0)`)
	b.exec(t, `DROP TRIGGER full_disk ON fencing.resource`)
	require.ErrorIs(t, receive(t, result), context.Canceled)
	require.NoError(t, ctx.Err())
	b.waitForNoLock(t)
	require.Positive(t, b.mark(t, "nightly")) // above what the failed attempts drew
}
