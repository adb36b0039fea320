package pgtest

const (
	// The version twice: as a number to compare, and as text to print.
	sqlVersion = `SELECT current_setting('server_version_num')::int4, current_setting('server_version')`

	// From template0, which nobody can be connected to, unlike template1.
	sqlCreateTemplate = `CREATE DATABASE %s TEMPLATE template0`

	// A database that nobody can connect to can always be cloned.
	sqlSealTemplate = `ALTER DATABASE %s WITH ALLOW_CONNECTIONS false`

	// Any number of these may run at once on one template.
	sqlClone = `CREATE DATABASE %s TEMPLATE %s`

	// With FORCE, for the sessions that a test left behind or broke.
	sqlDrop = `DROP DATABASE IF EXISTS %s WITH (FORCE)`
)
