package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/lockview"
)

// server looks at what waiting and naming need.
func server(ctx context.Context, r *Report, db pgx.Tx) error {
	var (
		version, encoding string
		number            int64
		language          bool
		deadlock          float64
	)
	const name = "pgadvisory dé £€" // more than ASCII, where encodings differ
	err := db.QueryRow(ctx, `SELECT pg_catalog.version(), pg_catalog.current_setting('server_encoding'),
		pg_catalog.hashtextextended($1, 0),
		coalesce((SELECT pg_catalog.has_language_privilege(l.oid, 'USAGE') FROM pg_catalog.pg_language l WHERE l.lanname = 'plpgsql'), false),
		extract(epoch FROM pg_catalog.current_setting('deadlock_timeout')::interval)::float8 * 1000`,
		name).Scan(&version, &encoding, &number, &language, &deadlock)
	if err != nil {
		return err
	}
	version, _, _ = strings.Cut(version, " (")
	version, _, _ = strings.Cut(version, " on ")
	r.ok("%s is supported", version)
	if number == lockview.NumberOf(name) {
		r.ok("names have the same numbers here as on the server")
	} else {
		r.problem("use names in ASCII only, or a database with the encoding UTF8",
			"a name with letters beyond ASCII has another number in SQL than here: the database's encoding is %s", encoding)
	}
	if language {
		r.ok("the language plpgsql, which waiting needs, can be used")
	} else {
		r.problem("CREATE EXTENSION plpgsql, and GRANT USAGE ON LANGUAGE plpgsql to the role",
			"the language plpgsql is missing or may not be used: without it a lock can be tried and not waited for")
	}
	// Waits last for 300 ms, or half of this; see advisory.Locker.Lock.
	if deadlock < 100 {
		r.note("set deadlock_timeout back to 1s", "deadlock_timeout is %v ms: who waits asks the server anew twice in that time", deadlock)
	}
	return nil
}

// room looks at what can run out.
func room(ctx context.Context, r *Report, db pgx.Tx) error {
	var locks, places, sessions, limit int
	var what string
	err := db.QueryRow(ctx, `
SELECT (SELECT count(*) FROM pg_catalog.pg_locks WHERE NOT fastpath),
	current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int),
	u.used, u.most, u.what
FROM (
	SELECT sum(numbackends)::int AS used, (current_setting('max_connections')::int
		- CASE WHEN current_setting('is_superuser') = 'on' THEN 0 ELSE current_setting('superuser_reserved_connections')::int END) AS most,
		'max_connections' AS what
	FROM pg_catalog.pg_stat_database
	UNION ALL
	SELECT (SELECT count(*)::int FROM pg_catalog.pg_stat_activity a WHERE a.usename = r.rolname), r.rolconnlimit, 'the role''s CONNECTION LIMIT'
	FROM pg_catalog.pg_roles r WHERE r.rolname = current_user AND r.rolconnlimit >= 0 AND NOT r.rolsuper
	UNION ALL
	SELECT (SELECT count(*)::int FROM pg_catalog.pg_stat_activity a WHERE a.datname = d.datname), d.datconnlimit, 'the database''s CONNECTION LIMIT'
	FROM pg_catalog.pg_database d WHERE d.datname = current_database() AND d.datconnlimit >= 0 AND current_setting('is_superuser') <> 'on'
) u ORDER BY u.most - u.used LIMIT 1`).Scan(&locks, &places, &sessions, &limit, &what)
	if err != nil {
		return err
	}
	fix := "raise max_locks_per_transaction and restart the server, or find who holds so many: SELECT pid, count(*) FROM pg_locks GROUP BY 1 ORDER BY 2 DESC"
	switch percent := 100 * locks / max(1, places); {
	case percent >= 90:
		r.problem(fix, "the lock table is nearly full: %d locks, with room for about %d", locks, places)
	case percent >= 50:
		r.note(fix, "the lock table is filling: %d locks, with room for about %d", locks, places)
	default:
		r.ok("the lock table has room: %d locks, with room for about %d", locks, places)
	}
	fix = "raise it, or end sessions that idle; each holder and each who waits needs a connection of its own"
	switch free := limit - sessions; {
	case free <= 0:
		r.problem(fix, "no connection is left: %d of %d are used (%s)", sessions, limit, what)
	case free < 5 || free*10 < limit:
		r.note(fix, "few connections are left: %d of %d are used (%s)", sessions, limit, what)
	default:
		r.ok("there are connections left: %d of %d are used (%s)", sessions, limit, what)
	}
	return nil
}
