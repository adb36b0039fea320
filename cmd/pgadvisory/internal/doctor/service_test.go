package doctor_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/doctor"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

type look func(context.Context, *doctor.Report, pgx.Tx) error

// asked is what doctor finds in a transaction that is rolled back, after the
// statements have made the server look like another.
func asked(t *testing.T, conn *pgx.Conn, look look, statements ...string) doctor.Report {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(context.Background())) }()
	for _, statement := range append([]string{`SET LOCAL search_path = pg_catalog, pg_temp`, `SET LOCAL allow_system_table_mods = on`}, statements...) {
		_, err := tx.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	var r doctor.Report
	require.NoError(t, look(t.Context(), &r, tx))
	return r
}

// role makes one, unless the server has it.
func role(name string) string {
	return `DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '` + name + `') THEN CREATE ROLE ` + name + `; END IF; END $$`
}

func version(text string) string {
	return `CREATE OR REPLACE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql AS $$ SELECT '` + text + `' $$`
}

// asNobody goes on as a role without any privilege.
func asNobody() []string {
	return []string{`CREATE ROLE pgadvisory_nobody`, `SET LOCAL ROLE pgadvisory_nobody`}
}

var shown = map[string]struct {
	statements []string
	want       string
	level      doctor.Level
}{
	"PostgreSQL":  {nil, "the engine is PostgreSQL; nothing shows a managed service", doctor.OK},
	"Aurora":      {[]string{`CREATE FUNCTION pg_catalog.aurora_version() RETURNS text LANGUAGE sql AS 'SELECT 1'`, role("rdsadmin"), role("rds_superuser")}, "this is Amazon Aurora, as the function aurora_version shows", doctor.OK},
	"RDS":         {[]string{role("rdsadmin"), role("rds_superuser")}, "this is Amazon RDS, as the role rdsadmin shows", doctor.OK},
	"Neon":        {[]string{`SET LOCAL neon.timeline_id = 'a1'`}, "this is Neon, as the setting neon.timeline_id shows", doctor.OK},
	"Neon's role": {[]string{role("neon_superuser")}, "this is Neon, as the role neon_superuser shows", doctor.OK},
	"Supabase":    {[]string{role("supabase_admin")}, "this is Supabase, as the role supabase_admin shows", doctor.OK},
	"Azure":       {[]string{role("azure_pg_admin")}, "this is Azure Database for PostgreSQL, as the role azure_pg_admin shows", doctor.OK},
	"Cloud SQL":   {[]string{role("cloudsqladmin")}, "this is Google Cloud SQL, as the role cloudsqladmin shows", doctor.OK},
	"AlloyDB":     {[]string{role("alloydbadmin"), role("cloudsqladmin")}, "this is Google AlloyDB, as the role alloydbadmin shows", doctor.OK},
	"Aiven":       {[]string{role("avnadmin")}, "this is Aiven for PostgreSQL, as the role avnadmin shows", doctor.OK},
	"DigitalOcean": {
		[]string{role("doadmin")}, "this is DigitalOcean Managed PostgreSQL, as the role doadmin shows", doctor.OK,
	},
	"YugabyteDB": {
		[]string{version("PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu")},
		"this is YugabyteDB, as its version() shows: it has another storage than PostgreSQL: neither locks nor fencing are tested with it", doctor.Note,
	},
	"EDB": {[]string{version("PostgreSQL 16.1 (EnterpriseDB Advanced Server 16.1.0) on x86_64")}, "this is EDB Postgres Advanced Server, as its version() shows", doctor.OK},
	"Citus": {
		[]string{`INSERT INTO pg_extension SELECT 4294900000, 'citus', extowner, extnamespace, false, '12', NULL, NULL FROM pg_extension WHERE extname = 'plpgsql'`},
		"this is Citus, as the extension citus shows: it has no triggers of statements on distributed tables: these can't be guarded", doctor.Note,
	},
}

func TestEngine_isNamedByWhatEveryRoleSees(t *testing.T) {
	t.Parallel()
	for name, c := range shown {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := asked(t, pgtest.New(t).Conn(t), doctor.Engine, append(c.statements, asNobody()...)...)
			require.Len(t, r, 1)
			require.Equal(t, c.want, r[0].What)
			require.Equal(t, c.level, r[0].Level)
			require.Equal(t, c.level != doctor.OK, r[0].Fix != "")
		})
	}
}

func TestEngine_namesAnExtensionBesideTheService(t *testing.T) {
	t.Parallel()
	r := asked(t, pgtest.New(t).Conn(t), doctor.Engine, append(shown["Citus"].statements, role("azure_pg_admin"))...)
	require.Len(t, r, 2)
	require.Contains(t, r[0].What, "Azure")
	require.Contains(t, r[1].What, "Citus")
}

func TestEventTriggers_saysWhoCanCreateThem(t *testing.T) {
	t.Parallel()
	member := []string{`CREATE ROLE pgadvisory_member IN ROLE rds_superuser`, `SET LOCAL ROLE pgadvisory_member`}
	for name, c := range map[string]struct {
		statements []string
		want       string
		level      doctor.Level
	}{
		"superuser": {nil, "this role can create event triggers, as a superuser", doctor.OK},
		"nobody":    {asNobody(), "this role can't create event triggers: only a superuser can", doctor.Note},
		"main user": {
			append([]string{role("rdsadmin"), role("rds_superuser")}, member...),
			"this role can create event triggers, as a member of rds_superuser on Amazon RDS", doctor.OK,
		},
		"nobody of a service": {
			append([]string{role("rdsadmin"), role("rds_superuser")}, asNobody()...),
			"this role can't create event triggers; on Amazon RDS members of rds_superuser can", doctor.Note,
		},
		"nobody where nobody can": {
			append([]string{role("avnadmin")}, asNobody()...), "this role can't create event triggers: only a superuser can", doctor.Note,
		},
		"it is there": {
			append([]string{`CREATE EVENT TRIGGER fencing ON ddl_command_end EXECUTE FUNCTION fencing.on_ddl()`}, asNobody()...),
			"an event trigger guards what is added to guarded tables", doctor.OK,
		},
		"it is disabled": {
			append([]string{`CREATE EVENT TRIGGER fencing ON ddl_command_end EXECUTE FUNCTION fencing.on_ddl()`, `ALTER EVENT TRIGGER fencing DISABLE`}, asNobody()...),
			"this role can't create event triggers: only a superuser can", doctor.Note,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := asked(t, pgtest.New(t).Conn(t), doctor.EventTriggers, c.statements...)
			require.Len(t, r, 1)
			require.Contains(t, r[0].What, c.want)
			require.Equal(t, c.level, r[0].Level)
		})
	}
}
