//go:build unix

package arena

const (
	// No constraint keeps a stale write out: that is for the guard to do.
	tablesSQL = `CREATE TABLE register_%[1]s (value text NOT NULL);
		INSERT INTO register_%[1]s VALUES ('');
		CREATE TABLE journal_%[1]s (
			id      bigserial,
			op      text    NOT NULL,
			worker  int     NOT NULL,
			token   bigint  NOT NULL,
			segment int     NOT NULL,
			swap    boolean NOT NULL
		)`

	// One statement, so that all is of one moment.
	contentSQL = `SELECT (SELECT string_agg(value, ',') FROM register_%[1]s),
		(SELECT count(*) FROM journal_%[1]s WHERE segment < $1),
		coalesce((SELECT mark FROM fencing.resource WHERE name = '%[1]s'), 0),
		coalesce((SELECT json_agg(json_build_object('id', id, 'op', op, 'token', token, 'w', worker, 'swap', swap) ORDER BY id)
			FROM journal_%[1]s WHERE segment = $1), '[]'),
		('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int`

	// The advisory locks that are left, of the two-key space too.
	locksSQL = `SELECT coalesce(string_agg(format('%s by %s (%s)', l.objid, l.pid, a.state), ', '), '')
		FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory'`

	sessionsSQL = `SELECT coalesce(string_agg(format('%s %s: %s', pid, state, left(query, 60)), ', '), '')
		FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`
)
