package fencing_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
)

func TestNew_refusesWhatCantWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := fencing.New(nil, nil)
	require.ErrorContains(t, err, "needs a locker")

	locker, err := advisory.New(b.pool, nil)
	require.NoError(t, err)
	for _, d := range []time.Duration{-time.Second, -1, 1, time.Millisecond - 1} {
		_, err = fencing.New(locker, &fencing.Config{MaxIdle: d})
		require.ErrorContains(t, err, "MaxIdle is "+d.String())
	}
	config := fencing.Config{}
	_, err = fencing.New(locker, &config)
	require.NoError(t, err)
	require.Equal(t, fencing.Config{}, config)
}

var badResources = map[string]string{
	"empty":         "",
	"zero byte":     "night\x00ly",
	"invalid UTF-8": "night\xffly",
}

func TestFencer_refusesResourcesThatCantBeText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	never := func(context.Context, *fencing.Lease) error { panic("not reached") }
	for name, resource := range badResources {
		_, err := b.fencer.Lock(t.Context(), resource)
		require.ErrorIs(t, err, advisory.ErrInvalidKey, name)
		_, err = b.fencer.TryLock(t.Context(), resource)
		require.ErrorIs(t, err, advisory.ErrInvalidKey, name)
		require.ErrorIs(t, b.fencer.Do(t.Context(), resource, never), advisory.ErrInvalidKey, name)
		require.ErrorIs(t, b.fencer.TryDo(t.Context(), resource, never), advisory.ErrInvalidKey, name)
	}
	require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM fencing.resource`))
	b.waitForNoLock(t)
}

func TestStamp_refusesResourcesThatCantBeText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE plain (id int)`)
	for name, code := range map[string]string{"empty": "22023", "zero byte": "22021", "invalid UTF-8": "22021"} {
		tx, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		err = fencing.Stamp(t.Context(), tx, badResources[name], 1)
		requireCode(t, err, code)
		// The transaction is failed, as after any error of a statement, and its
		// connection is not.
		_, err = tx.Exec(t.Context(), `INSERT INTO plain VALUES (1)`)
		requireCode(t, err, "25P02")
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, tx.Conn().Ping(t.Context()))

		err = fencing.Guard(t.Context(), b.pool, "plain", badResources[name])
		requireCode(t, err, code)
	}
	b.exec(t, `INSERT INTO plain VALUES (1)`)
}

func TestStamp_refusesWhatIsNoToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	for _, token := range []fencing.Token{0, -1, math.MinInt64} {
		tx, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		err = fencing.Stamp(t.Context(), tx, "nightly", token)
		require.ErrorContains(t, err, `resource "nightly"`)
		require.ErrorContains(t, err, "tokens start at 1")
		require.Empty(t, one[string](t, tx, stampsSQL))
		require.ErrorIs(t, fencing.Translate(write(t.Context(), "exports", 3)(tx)), fencing.ErrUnstamped)
		require.NoError(t, tx.Rollback(t.Context()))
	}
	for _, arguments := range []string{
		`'nightly', 0`, `'nightly', -1`, `'nightly', NULL`, `'', 1`, `NULL, 1`,
		`'nightly', 1, '0'`, `'nightly', 1, '-1s'`, `'nightly', 1, '100us'`, `'nightly', 1, NULL`,
	} {
		_, err := b.pool.Exec(t.Context(), `SELECT fencing.stamp(`+arguments+`)`)
		requireCode(t, err, "22023")
	}
}

// A Lease that no Fencer made has no token.
func TestLease_thatWasNotLockedDoesNotStamp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := &fencing.Lease{}
	require.Zero(t, lease.Token())
	require.Empty(t, lease.Resource())
	require.ErrorIs(t, lease.Unlock(t.Context()), advisory.ErrNotOwner)
	require.ErrorIs(t, lease.Err(), advisory.ErrNotOwner)
	require.NotPanics(t, func() {
		err := lease.InTx(t.Context(), b.pool, func(pgx.Tx) error { panic("not reached") })
		require.ErrorContains(t, err, "tokens start at 1")
	})
	require.Zero(t, b.pool.Stat().AcquiredConns())
}

func TestStamp_acceptsTheLargestToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `INSERT INTO fencing.resource (name, mark, epoch) VALUES ('nightly', $1, fencing.epoch())`, int64(math.MaxInt64))
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		if err := fencing.Stamp(t.Context(), tx, "nightly", math.MaxInt64); err != nil {
			return err
		}
		return write(t.Context(), "exports", 3)(tx)
	}))
	// There is none above it.
	_, err := b.fencer.TryLock(t.Context(), "nightly")
	requireCode(t, err, "22003")
	b.waitForNoLock(t)
	require.Equal(t, fencing.Token(math.MaxInt64), b.mark(t, "nightly"))
}
