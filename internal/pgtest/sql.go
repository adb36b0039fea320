package pgtest

const (
	// The version twice: as a number to compare, and as text to print.
	sqlVersion = `SELECT current_setting('server_version_num')::int4, current_setting('server_version')`

	// 0 if no transaction can be prepared.
	sqlMaxPrepared = `SELECT current_setting('max_prepared_transactions')::int4`

	// Differs after a restart.
	sqlStartTime = `SELECT pg_catalog.pg_postmaster_start_time()`

	// From template0, which nobody can be connected to, unlike template1.
	sqlCreateTemplate = `CREATE DATABASE %s TEMPLATE template0`

	// A database that nobody can connect to can always be cloned.
	sqlSealTemplate = `ALTER DATABASE %s WITH ALLOW_CONNECTIONS false`

	// Any number of these may run at once on one template.
	sqlClone = `CREATE DATABASE %s TEMPLATE %s`

	// A clone is no copy that needs a rebase: nobody uses the template.
	sqlAdopt = `UPDATE fencing.origin SET database = (SELECT oid FROM pg_database WHERE datname = current_database())`

	// Nobody may be connected to it.
	sqlRename = `ALTER DATABASE %s RENAME TO %s`

	// With FORCE, for the sessions that a test left behind or broke.
	sqlDrop = `DROP DATABASE IF EXISTS %s WITH (FORCE)`

	// How far the primary has written, and whether the standby is there yet.
	sqlWritten  = `SELECT pg_catalog.pg_current_wal_lsn()::text`
	sqlReplayed = `SELECT coalesce(pg_catalog.pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false)`

	// Whether nobody receives anything from the primary.
	sqlNoStandby = `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_replication)`

	// True when the promotion is done; it waits that long, in seconds.
	sqlPromote = `SELECT CASE WHEN pg_catalog.pg_promote(true, 25) THEN NOT pg_catalog.pg_is_in_recovery() END`
)
