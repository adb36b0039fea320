package migrations_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// role makes one that may create schemas in the test's database.
func (b *bundle) role(t *testing.T) (name string) {
	t.Helper()
	name = "pgtest_role_" + strings.ToLower(rand.Text())
	b.exec(t, `CREATE ROLE `+name+`; GRANT CREATE ON DATABASE `+b.db.Name+` TO `+name)
	conn := b.db.Conn(t)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `DROP OWNED BY `+name+` CASCADE; DROP ROLE `+name)
		require.NoError(t, err)
	})
	return name
}

// as returns a pool of the role.
func (b *bundle) as(t *testing.T, role string, settings ...string) *pgxpool.Pool {
	t.Helper()
	return b.db.Pool(t, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["role"] = role
		for i := 0; i < len(settings); i += 2 {
			c.ConnConfig.RuntimeParams[settings[i]] = settings[i+1]
		}
	})
}

// $1 is a role that is not the one that installs.
var preparedSchemas = map[string]struct{ sql, want string }{
	"empty":                  {`CREATE SCHEMA fencing AUTHORIZATION $1`, "belongs to"},
	"with a false version":   {`CREATE SCHEMA fencing AUTHORIZATION $1; CREATE FUNCTION fencing.version() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint + 1'`, "fencing.version() is not that of a migration"},
	"with a true version":    {`CREATE SCHEMA fencing AUTHORIZATION $1; CREATE FUNCTION fencing.version() RETURNS bigint LANGUAGE sql AS 'SELECT 2::bigint'`, "belongs to"},
	"with a record":          {`CREATE SCHEMA fencing AUTHORIZATION $1; CREATE TABLE fencing.migration (id int)`, "belongs to"},
	"another's record":       {`CREATE SCHEMA fencing; CREATE TABLE fencing.migration (id int); ALTER TABLE fencing.migration OWNER TO $1`, `"migration" in it does not belong to`},
	"another's function":     {`CREATE SCHEMA fencing; CREATE FUNCTION fencing.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER FUNCTION fencing.mine() OWNER TO $1`, `"mine" in it does not belong to`},
	"open to others":         {`CREATE SCHEMA fencing; GRANT CREATE ON SCHEMA fencing TO $1`, "other roles may create objects in it"},
	"open to all":            {`CREATE SCHEMA fencing; GRANT CREATE ON SCHEMA fencing TO PUBLIC`, "other roles may create objects in it"},
	"with a table":           {`CREATE SCHEMA fencing; CREATE TABLE fencing.job (id int)`, "contains table fencing.job"},
	"with a function":        {`CREATE SCHEMA fencing; CREATE FUNCTION fencing.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'`, "contains function fencing.mine()"},
	"with a type":            {`CREATE SCHEMA fencing; CREATE TYPE fencing.mood AS ENUM ('ok')`, "contains type fencing.mood"},
	"with an operator":       {`CREATE SCHEMA fencing; CREATE OPERATOR fencing.||| (FUNCTION = int4pl, LEFTARG = int, RIGHTARG = int)`, "contains operator fencing.|||"},
	"with a version of ours": {`CREATE SCHEMA fencing; CREATE FUNCTION fencing.version() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'`, "installed by another tool"},
}

func TestUp_refusesASchemaThatAnotherMayHavePrepared(t *testing.T) {
	t.Parallel()
	for name, c := range preparedSchemas {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(t, strings.ReplaceAll(c.sql, "$1", b.role(t)))
			pool := b.db.Pool(t)
			require.ErrorContains(t, migrations.Up(t.Context(), pool), c.want)
			b.waitForNoLock(t)
			requireGivenBack(t, pool)
			require.False(t, one[bool](t, b.observer, `SELECT to_regclass('fencing.resource') IS NOT NULL`))
		})
	}
}

// Each object would otherwise belong to whoever ran the migration that makes it.
func TestUpAndDown_refuseAnotherRoleThanTheOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, other := b.role(t), b.role(t)
	require.NoError(t, migrations.Up(t.Context(), b.as(t, owner)))
	objects := one[int](t, b.observer, installedSQL)
	for name, pool := range map[string]*pgxpool.Pool{"a superuser": b.pool, "another role": b.as(t, other)} {
		for _, run := range []func(context.Context, *pgxpool.Pool) error{migrations.Up, migrations.Down} {
			err := run(t.Context(), pool)
			require.ErrorIs(t, err, migrations.ErrOtherOwner, name)
			require.ErrorContains(t, err, `"`+owner+`"`)
		}
	}
	require.Equal(t, objects, one[int](t, b.observer, installedSQL))
	b.requireWhole(t)
	report, err := fencing.Verify(t.Context(), b.pool)
	require.NoError(t, err)
	require.True(t, report.OK(), "%+v", report)
	b.waitForNoLock(t)
}

func TestUp_ofALaterVersionRefusesAnotherRole(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner := b.role(t)
	require.NoError(t, b.goTo(t, 1))
	b.exec(t, `ALTER SCHEMA fencing OWNER TO `+owner)
	// goose by itself does not ask who owns the schema; the migration does.
	requireCode(t, b.goTo(t, newest), "42501")
	b.requireState(t, 1)
}

func TestUpAndDown_ofAnInstalledSchemaNeedNoPrivilegeOnTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner := b.role(t)
	require.NoError(t, migrations.Up(t.Context(), b.as(t, owner)))
	b.exec(t, `REVOKE CREATE ON DATABASE `+b.db.Name+` FROM `+owner)
	require.NoError(t, migrations.Up(t.Context(), b.as(t, owner)))
	require.NoError(t, migrations.Up(t.Context(), b.as(t, owner, "default_transaction_read_only", "on")))
	b.requireWhole(t)
	require.NoError(t, migrations.Down(t.Context(), b.as(t, owner)))
	b.requireNothing(t)
}

func TestVersion_callsNothingOfTheSchema(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role := b.role(t)
	require.NoError(t, migrations.Up(t.Context(), b.pool))
	// Not even USAGE is needed.
	version, err := migrations.Version(t.Context(), b.as(t, role))
	require.NoError(t, err)
	require.Equal(t, newest, version)

	b.exec(t, `CREATE TABLE called (id int);
		CREATE OR REPLACE FUNCTION fencing.version() RETURNS bigint LANGUAGE sql AS 'INSERT INTO public.called VALUES (1); SELECT 2::bigint'`)
	_, err = migrations.Version(t.Context(), b.pool)
	require.ErrorContains(t, err, "not that of a migration")
	require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM called`))
}
