//go:build unix

package arena

const (
	// No constraint keeps a stale write out: that is for the guards to do. The
	// guard writes fencing_token.
	journalSQL = `CREATE TABLE journal (
			id      bigserial,
			key     text    NOT NULL,
			op      text    NOT NULL,
			worker  int     NOT NULL,
			segment int     NOT NULL,
			swap    boolean NOT NULL,
			fencing_token bigint
		);
		CREATE INDEX ON journal (key, segment)`

	registerSQL = `CREATE TABLE register_%[1]s (value text NOT NULL);
		INSERT INTO register_%[1]s VALUES ('')`

	// One statement, so that all is of one moment.
	contentSQL = `SELECT (SELECT string_agg(value, ',') FROM register_%[1]s),
		(SELECT count(*) FROM journal WHERE key = '%[1]s' AND segment < $1),
		coalesce((SELECT max(mark) FROM fencing.resource WHERE name = '%[1]s'), 0),
		(SELECT count(*) FROM fencing.resource WHERE name = '%[1]s'),
		coalesce((SELECT json_agg(json_build_object('id', id, 'op', op, 'token', fencing_token, 'w', worker, 'swap', swap) ORDER BY id)
			FROM journal WHERE key = '%[1]s' AND segment = $1), '[]'),
		('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int`

	// The advisory locks that are left, of the two-key space too.
	locksSQL = `SELECT coalesce(string_agg(format('%s by %s (%s)', l.objid, l.pid, a.state), ', '), '')
		FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory'`

	sessionsSQL = `SELECT coalesce(string_agg(format('%s %s: %s', pid, state, left(query, 60)), ', '), '')
		FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`
)
