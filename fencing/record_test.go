package fencing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// A function of somebody else that a superuser calls runs with its owner's rights,
// and with the superuser's session_user. What it passes to fencing.record changes
// nothing, because it can't change the table.
func TestRecord_asksForWhatOnlyTheOwnerCanHaveDone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `CREATE TABLE imports (id int, tenant text); CREATE TABLE bare (id int)`)
	role, pool := b.ownerOf(t, "mine")
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	b.exec(t, `GRANT ALL ON exports, imports, bare TO `+role)
	_, err := pool.Exec(t.Context(), `
		CREATE FUNCTION evil(command text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN EXECUTE command; END $$`)
	require.NoError(t, err)
	before := b.contents(t, "fencing.guarded")

	// With the privilege TRIGGER it can make triggers that look like those of a guard.
	_, err = pool.Exec(t.Context(), `
		CREATE TRIGGER fencing_guard BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON public.imports FOR EACH STATEMENT EXECUTE FUNCTION fencing.check_statement('hourly');
		CREATE TRIGGER fencing_unguard_first AFTER DELETE ON public.imports REFERENCING OLD TABLE AS fencing_old FOR EACH ROW WHEN (false) EXECUTE FUNCTION fencing.check_row('hourly');
		CREATE TRIGGER fencing_unguarded AFTER DELETE ON public.bare FOR EACH STATEMENT EXECUTE FUNCTION fencing.refuse_truncate()`)
	require.NoError(t, err)
	for _, command := range []string{
		`SELECT fencing.record('public.exports', NULL, NULL, NULL, false)`,
		`SELECT fencing.record('public.exports', 'hourly', NULL, '', true)`,
		`SELECT fencing.record('public.exports', NULL, 'note', '', true)`,
		`SELECT fencing.record('public.imports', 'hourly', NULL, '', true)`,
		`SELECT fencing.record('public.imports', NULL, 'tenant', '', true)`,
		`SELECT fencing.record('public.imports', NULL, NULL, '', true)`,
		`SELECT fencing.record('public.bare', NULL, NULL, NULL, false)`,
		`SELECT fencing.record('public.bare', NULL, NULL, NULL, NULL)`,
		`SELECT fencing.record('public.bare', 'hourly', NULL, '', true)`,
		`SELECT fencing.record(NULL, 'hourly', NULL, '', true)`,
		`SELECT fencing.record(12345678, NULL, NULL, NULL, false)`,
		`SELECT fencing.unguard('public.exports')`,
	} {
		_, err = b.observer.Exec(t.Context(), `SELECT mine.evil($1)`, command) // as a superuser
		requireCode(t, err, "42501")
		_, err = pool.Exec(t.Context(), command)
		requireCode(t, err, "42501")
		require.Equal(t, before, b.contents(t, "fencing.guarded"), command)
	}
	_, err = b.observer.Exec(t.Context(), `INSERT INTO exports VALUES (3)`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)

	// What is true, everybody may say.
	_, err = pool.Exec(t.Context(), `SELECT fencing.record('public.exports', 'nightly', NULL, '', true)`)
	require.NoError(t, err)
	require.Equal(t, 1, one[int](t, b.observer, `SELECT count(*) FROM fencing.guarded`))
}

// Nor is a record removed of which the triggers are gone: that is what Verify is
// there to find.
func TestRecord_isKeptWhenTheTriggersAreGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	role := b.role(t)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	b.exec(t, `DROP TRIGGER fencing_guard ON exports; DROP TRIGGER fencing_unguard_first ON exports`)
	_, err := b.as(t, role).Exec(t.Context(), `SELECT fencing.record('public.exports', NULL, NULL, NULL, false)`)
	requireCode(t, err, "42501")
	require.Len(t, problems(t, b.pool, "public.exports"), 2)
	require.NoError(t, fencing.Unguard(t.Context(), b.pool, "exports"))
	requireProblems(t, b)
	require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM fencing.guarded`))
	require.Zero(t, one[int](t, b.observer, triggersSQL))
}

// Who acts for the owner in another way than by the session's user is the owner.
func TestRecord_letsWhoeverActsForTheOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role, pool := b.ownerOf(t, "mine")
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE orders (id int);
		CREATE FUNCTION on_behalf(guarded boolean) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			IF guarded THEN PERFORM fencing.guard('mine.orders', 'nightly'); ELSE PERFORM fencing.unguard('mine.orders'); END IF; END $$`)
	require.NoError(t, err)
	other := b.role(t)
	b.exec(t, `GRANT USAGE ON SCHEMA mine TO `+other)
	for _, guarded := range []bool{true, false} {
		_, err = b.as(t, other).Exec(t.Context(), `SELECT mine.on_behalf($1)`, guarded)
		require.NoError(t, err)
		require.Equal(t, guarded, one[bool](t, b.observer, `SELECT EXISTS (SELECT FROM fencing.guarded)`))
	}
}

// Whoever may call it can neither change the record of a guard that is there nor keep its owner
// waiting.
func TestRecord_ofAGuardThatIsThereTouchesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	app := b.role(t)
	b.exec(t, `SELECT fencing.grant_to('`+app+`')`)
	const recordedSQL = `SELECT target || coalesce(resource, '') || coalesce(by_column, '') || prefix FROM fencing.guarded`
	before := one[string](t, b.observer, recordedSQL)
	tx, err := b.as(t, app).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT fencing.record('exports', 'nightly', NULL, '', true)`)
	require.NoError(t, err)
	b.exec(t, `SET lock_timeout = '5s'; SELECT fencing.unguard('exports'); SELECT fencing.guard('exports', 'nightly')`)
	require.NoError(t, tx.Rollback(t.Context()))
	for _, prefix := range []string{`'other'`, `NULL`} {
		_, err = b.as(t, app).Exec(t.Context(), `SELECT fencing.record('exports', 'nightly', NULL, `+prefix+`, true)`)
		requireCode(t, err, "42501")
	}
	require.Equal(t, before, one[string](t, b.observer, recordedSQL))
}
