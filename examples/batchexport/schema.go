//go:build unix

package main

// The tables are in a schema of this run, which every connection has as its
// search_path. %s is that schema.
const (
	createSchemaSQL = "CREATE SCHEMA %s"
	dropSchemaSQL   = "DROP SCHEMA IF EXISTS %s CASCADE"

	createEarthquakesSQL = `
CREATE TABLE earthquakes (
    id             text        PRIMARY KEY,
    occurred_at    timestamptz NOT NULL,
    magnitude      numeric     NOT NULL,
    magnitude_type text        NOT NULL,
    depth_km       numeric     NOT NULL,
    latitude       numeric     NOT NULL,
    longitude      numeric     NOT NULL,
    place          text        NOT NULL,
    day            date        NOT NULL GENERATED ALWAYS AS ((occurred_at AT TIME ZONE 'UTC')::date) STORED
)`

	loadEarthquakesSQL = "COPY earthquakes FROM STDIN (FORMAT csv, HEADER)"

	// The token is for the reader. The fence does not need a column.
	createExportsSQL = `
CREATE TABLE exports (
    day     date    PRIMARY KEY,
    file    text    NOT NULL,
    rows    integer NOT NULL,
    sha256  text    NOT NULL,
    token   bigint  NOT NULL,
    replica text    NOT NULL
)`
)

// What a replica does.
const (
	nextDaySQL = "SELECT min(day) FROM earthquakes WHERE day NOT IN (SELECT day FROM exports)"

	earthquakesOfSQL = `
SELECT id, occurred_at, magnitude::text, magnitude_type, depth_km::text, latitude::text, longitude::text, place
  FROM earthquakes WHERE day = $1 ORDER BY occurred_at, id`

	// The last writer wins, as in any job that may be run again. It is what
	// makes a stale write dangerous: no constraint would stop it.
	publishSQL = `
INSERT INTO exports (day, file, rows, sha256, token, replica) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (day) DO UPDATE
   SET file = excluded.file, rows = excluded.rows, sha256 = excluded.sha256,
       token = excluded.token, replica = excluded.replica`
)

// What the main process does besides.
const (
	// With a limit, the call returns when the session is gone, and not when it
	// was told to go.
	terminateSQL = "SELECT pg_terminate_backend($1::int4, 5000)"

	// The inner query is on its own, so that only sessions of this run are
	// terminated, whatever order the planner would prefer. While a session holds
	// a lock, its name says that first.
	endSessionsSQL = `
WITH own AS MATERIALIZED (
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND strpos(application_name, $1) > 0
)
SELECT count(pg_terminate_backend(pid)) FROM own`

	exportsSQL = "SELECT day, file, rows, sha256, token, replica FROM exports ORDER BY day"

	currentTokenSQL = "SELECT mark FROM fencing.resource WHERE name = $1"

	// A lock of one bigint has its high half in classid and its low half in
	// objid (PostgreSQL manual, section 52.12).
	locksSQL = `
SELECT count(*) FROM pg_locks
 WHERE locktype = 'advisory' AND objsubid = 1
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 0)`

	forgetResourceSQL = "WITH mark AS (DELETE FROM fencing.resource WHERE name = $1) DELETE FROM fencing.known_resource WHERE name = $1"
)
