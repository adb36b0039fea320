package tooltest_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

// inFront has names that the migrations use and the tools don't.
const inFront = `CREATE SCHEMA evil;
	CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp()';
	CREATE FUNCTION evil.differ(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 OPERATOR(pg_catalog.<>) $2';
	CREATE OPERATOR evil.<> (FUNCTION = evil.differ, LEFTARG = text, RIGHTARG = text);
	CREATE FUNCTION evil.is_greater(bigint, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 OPERATOR(pg_catalog.>) $2';
	CREATE OPERATOR evil.> (FUNCTION = evil.is_greater, LEFTARG = bigint, RIGHTARG = int);
	CREATE COLLATION evil."C" FROM pg_catalog."C";
	CREATE DOMAIN evil.text AS pg_catalog.text; CREATE DOMAIN evil.name AS pg_catalog.name; CREATE DOMAIN evil.oid AS pg_catalog.oid;
	CREATE DOMAIN evil.regclass AS pg_catalog.regclass; CREATE DOMAIN evil.regrole AS pg_catalog.regrole;
	CREATE DOMAIN evil.timestamptz AS pg_catalog.timestamptz; CREATE DOMAIN evil.jsonb AS pg_catalog.jsonb;
	CREATE TYPE evil.trigger AS (); CREATE TYPE evil.void AS (); CREATE TYPE evil.event_trigger AS ()`

// leaked is what the schema would keep of another schema.
const leaked = `SELECT coalesce(string_agg(pg_describe_object(d.classid, d.objid, d.objsubid) || ' on ' || pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), ', '), '')
	FROM pg_depend d, pg_identify_object(d.classid, d.objid, d.objsubid) o, pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) r
	WHERE r.schema = 'evil' AND o.identity LIKE '%fencing.%'`

var tools = map[string]struct{ up, down func(*testing.T, *bundle) }{
	"golang-migrate": {
		func(t *testing.T, b *bundle) {
			t.Helper()
			require.NoError(t, golangMigrate(t, b, (*migrate.Migrate).Up))
		},
		func(t *testing.T, b *bundle) {
			t.Helper()
			require.NoError(t, golangMigrate(t, b, (*migrate.Migrate).Down))
		},
	},
	"goose": {
		func(t *testing.T, b *bundle) {
			t.Helper()
			_, err := gooseProvider(t, b).Up(t.Context())
			require.NoError(t, err)
		},
		func(t *testing.T, b *bundle) {
			t.Helper()
			_, err := gooseProvider(t, b).DownTo(t.Context(), 0)
			require.NoError(t, err)
		},
	},
	"psql": {
		func(t *testing.T, b *bundle) {
			t.Helper()
			out, err := psql(t, b, "*.up.sql")
			require.NoError(t, err, out)
		},
		func(t *testing.T, b *bundle) {
			t.Helper()
			out, err := psql(t, b, "*.down.sql")
			require.NoError(t, err, out)
		},
	},
	"tern": {
		func(t *testing.T, b *bundle) {
			t.Helper()
			require.NoError(t, tern(t, b).Migrate(t.Context()))
		},
		func(t *testing.T, b *bundle) {
			t.Helper()
			require.NoError(t, tern(t, b).MigrateTo(t.Context(), 0))
		},
	},
}

func gooseProvider(t *testing.T, b *bundle) *goose.Provider {
	t.Helper()
	config, err := pgx.ParseConfig(b.db.DSN)
	require.NoError(t, err)
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS, goose.WithDisableGlobalRegistry(true))
	require.NoError(t, err)
	return provider
}

// The files hold for each tool, whatever search_path its sessions have: the schema
// keeps names of PostgreSQL's own only, and each tool finds its own table afterwards.
func TestTools_keepNoNameOfTheSearchPath(t *testing.T) {
	t.Parallel()
	for name, tool := range tools {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(t, inFront)
			plain := *b.db
			b.db = &plain
			dsn, err := url.Parse(plain.DSN)
			require.NoError(t, err)
			query := dsn.Query()
			if name == "psql" {
				query.Set("options", "-c search_path=evil,pg_catalog")
			} else {
				query.Set("search_path", "evil, pg_catalog")
			}
			dsn.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
			b.db.DSN = dsn.String()
			tool.up(t, b)
			require.Empty(t, one[string](t, b, leaked))
			b.requireForeign(t)
			tool.down(t, b)
			b.requireNothing(t)
		})
	}
}
