package pgtest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Most tests leave their database as they got it, and to copy one costs more than
// many a test. So a database that is as good as new serves the next test, under a
// new name, by which its log lines are told apart.

// sqlPristine is a fingerprint of all that tests do to a database.
const sqlPristine = `SELECT md5(concat_ws('|',
	(SELECT count(*) || ',' || max(oid) || ',' || md5(coalesce(string_agg(relacl::text, ' ' ORDER BY oid), '')) FROM pg_class),
	(SELECT count(*) || ',' || max(oid) || ',' || md5(coalesce(string_agg(proacl::text, ' ' ORDER BY oid), '')) FROM pg_proc),
	(SELECT count(*) || ',' || max(oid) || ',' || md5(coalesce(string_agg(nspacl::text, ' ' ORDER BY oid), '')) FROM pg_namespace),
	(SELECT md5(string_agg(prosrc || coalesce(proconfig::text, ''), ' ' ORDER BY oid)) FROM pg_proc WHERE pronamespace = 'fencing'::regnamespace),
	(SELECT md5(string_agg(l::text, ' ' ORDER BY oid)) FROM pg_language l),
	(SELECT count(*) || ',' || max(oid) FROM pg_type), (SELECT count(*) FROM pg_trigger), (SELECT count(*) FROM pg_event_trigger),
	(SELECT count(*) FROM pg_constraint), (SELECT count(*) FROM pg_rewrite), (SELECT count(*) FROM pg_default_acl),
	(SELECT count(*) FROM pg_publication), (SELECT count(*) FROM pg_extension), (SELECT md5(string_agg(s::text, ' ')) FROM pg_sequence s),
	(SELECT count(*) FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase WHERE d.datname = current_database()),
	(SELECT coalesce(datacl::text, '') || datconnlimit FROM pg_database WHERE datname = current_database()),
	(SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()),
	(SELECT count(*) FROM fencing.resource), (SELECT count(*) FROM fencing.known_resource), (SELECT count(*) FROM fencing.guarded),
	(SELECT concat(epoch, system_identifier, database) FROM fencing.origin), (SELECT last_value || ',' || is_called FROM fencing.token),
	(SELECT count(*) || ',' || max(version_id) FROM fencing.migration)))`

// sqlEvict ends all other sessions in the database, and sqlAlone tells when they
// have ended.
const (
	sqlEvict = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
	sqlAlone = `SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`
)

// evictLimit bounds the end of the sessions that a test has left.
const evictLimit = 5 * time.Second

// recycle keeps the database of a test that has ended for another test, or drops it.
func (t *template) recycle(name string) error {
	if !t.isPristine(name) {
		return t.dropDatabase(name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, name)
	return nil
}

// isPristine reports whether nobody could tell the database from a new one. Any
// error means no.
func (t *template) isPristine(name string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), evictLimit)
	defer cancel()
	dsn, err := withDatabase(t.dsn, name)
	if err != nil {
		return false
	}
	var fingerprint string
	err = withConn(ctx, dsn, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, sqlEvict); err != nil {
			return err
		}
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for alone := false; !alone; {
			if err := conn.QueryRow(ctx, sqlAlone).Scan(&alone); err != nil {
				return err
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return conn.QueryRow(ctx, sqlPristine).Scan(&fingerprint)
	})
	return err == nil && fingerprint == t.pristine
}

// reuse renames a database that was given back, and reports false if there is
// none.
func (t *template) reuse(ctx context.Context, name string) bool {
	t.mu.Lock()
	if len(t.free) == 0 {
		t.mu.Unlock()
		return false
	}
	old := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.mu.Unlock()
	if err := t.exec(ctx, fmt.Sprintf(sqlRename, quote(old), quote(name))); err != nil {
		_ = t.dropDatabase(old) // somebody came back to it
		return false
	}
	return true
}
