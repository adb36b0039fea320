package doctor_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/doctor"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const uninstall = `DROP SCHEMA fencing CASCADE`

// What is there comes before who may use it: a grant of what is not there helps
// nobody.
func TestSchema_judgesTheInstallationBeforeTheGrants(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statements []string
		want, fix  string
	}{
		"nothing":         {[]string{uninstall}, "fencing is not installed; locks don't need it", "pgadvisory migrate up"},
		"an empty schema": {append([]string{uninstall, `CREATE ROLE other`, `CREATE SCHEMA fencing AUTHORIZATION other`}, asNobody()...), "fencing is not installed, and role other has a schema of that name", "as other: pgadvisory migrate up; or drop the schema"},
		"a foreign one":   {[]string{`CREATE OR REPLACE FUNCTION fencing.version() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 1 / 0::bigint'`}, "the schema fencing is not of this program", "find out"},
		"an old version":  {append([]string{`CREATE OR REPLACE FUNCTION fencing.version() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 1::bigint'`}, asNobody()...), "fencing is at version 1, and this program needs", "pgadvisory migrate up"},
		"a whole one":     {asNobody(), "fencing is at version", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := asked(t, pgtest.New(t).Conn(t), doctor.Schema, c.statements...)
			require.Contains(t, r[0].What, c.want)
			require.Contains(t, r[0].Fix, c.fix)
			isInstalled := strings.HasPrefix(r[0].What, "fencing is at version")
			require.Equal(t, isInstalled, len(r) > 1, "%v", r) // else no word of grants
		})
	}
}

// Names in a fix are quoted for the shell that it is pasted into.
func TestSchema_quotesNamesForTheShell(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"app": "app", "v0; touch x; #": "'v0; touch x; #'", "-rf": "-- -rf", "a\nb": `$'a\012b'`,
	} {
		role := pgx.Identifier{name}.Sanitize()
		r := asked(t, pgtest.New(t).Conn(t), doctor.Schema,
			`CREATE ROLE `+role, `CREATE ROLE "own$(er)" SUPERUSER`, `ALTER SCHEMA fencing OWNER TO "own$(er)"`, `SET LOCAL ROLE `+role)
		require.Len(t, r, 2)
		require.Equal(t, doctor.Problem, r[1].Level)
		require.Equal(t, "as 'own$(er)': pgadvisory grant "+want, r[1].Fix)
	}
}

func TestEpoch_saysWhereItComesFrom(t *testing.T) {
	t.Parallel()
	source := func(text string) string {
		return `CREATE OR REPLACE FUNCTION fencing.epoch_source() RETURNS text LANGUAGE sql STABLE AS 'SELECT ''` + text + `''::text'`
	}
	for name, c := range map[string]struct {
		statements []string
		want       string
		level      doctor.Level
	}{
		"as it is":                        {nil, "the epoch of tokens is the server's timeline", doctor.OK},
		"constant":                        {[]string{source("constant")}, "the epoch of tokens is constant", doctor.Note},
		"another one":                     {[]string{source("clock")}, "the epoch of tokens comes from: clock", doctor.OK},
		"no such":                         {[]string{`DROP FUNCTION fencing.epoch_source() CASCADE`}, "", ""},
		"not granted":                     {asNobody(), "", ""},
		"not there":                       {[]string{uninstall}, "", ""},
		"of an owner who is no superuser": {[]string{`CREATE ROLE weak`, `ALTER SCHEMA fencing OWNER TO weak`, source("called")}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := asked(t, pgtest.New(t).Conn(t), doctor.Epoch, c.statements...)
			if c.want == "" {
				require.Empty(t, r)
				return
			}
			require.Len(t, r, 1)
			require.Contains(t, r[0].What, c.want)
			require.Equal(t, c.level, r[0].Level)
		})
	}
}

// The owner of the schema could have replaced what a superuser would run.
func TestGuards_areNotAskedOfAnOwnerWhoIsNoSuperuser(t *testing.T) {
	t.Parallel()
	r := asked(t, pgtest.New(t).Conn(t), doctor.Guards, `CREATE ROLE weak`, `ALTER SCHEMA fencing OWNER TO weak`,
		`CREATE OR REPLACE FUNCTION fencing.verify() RETURNS TABLE (target text, resource text, by_column text, prefix text, problem text, fix text)
			LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$`)
	require.Len(t, r, 1)
	require.Equal(t, doctor.Note, r[0].Level)
	require.Equal(t, "as weak: pgadvisory doctor", r[0].Fix)
}
