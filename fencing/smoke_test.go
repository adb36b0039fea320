package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	ctx := t.Context()
	require.NoError(t, migrations.Up(ctx, pool))
	v, err := migrations.Version(ctx, pool)
	require.NoError(t, err)
	require.EqualValues(t, 1, v)
	l, err := advisory.New(pool, nil)
	require.NoError(t, err)
	f, err := fencing.New(l, nil)
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "create table t(a int)")
	require.NoError(t, err)
	require.NoError(t, fencing.Guard(ctx, pool, "t", "r"))
	require.NoError(t, fencing.Guard(ctx, pool, "t", "r"))
	a, err := f.TryLock(ctx, "r")
	require.NoError(t, err)
	ins := func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "insert into t values(1)"); return err }
	require.NoError(t, a.InTx(ctx, pool, ins))
	t.Log(a.Token())
	require.NoError(t, a.Unlock(ctx))
	b, err := f.Lock(ctx, "r")
	require.NoError(t, err)
	t.Log(b.Token())
	err = a.InTx(ctx, pool, ins)
	t.Log(err)
	require.ErrorIs(t, err, fencing.ErrStale)
	_, err = pool.Exec(ctx, "insert into t values(1)")
	err = fencing.Translate(err)
	t.Log(err)
	require.ErrorIs(t, err, fencing.ErrUnstamped)
	require.NoError(t, b.Unlock(ctx))
	err = migrations.Down(ctx, pool)
	t.Log(err)
	require.Error(t, err)
	require.NoError(t, fencing.Unguard(ctx, pool, "t"))
	require.NoError(t, migrations.Down(ctx, pool))
	_, err = f.TryLock(ctx, "r")
	t.Log(err)
	require.ErrorIs(t, err, fencing.ErrNotInstalled)
	require.NoError(t, migrations.Up(ctx, pool))
	require.NoError(t, l.Close(ctx))
}
