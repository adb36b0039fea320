package advisory_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// encodedDatabase is a database of another encoding on the tests' server.
func encodedDatabase(t *testing.T, encoding string) *pgtest.Database {
	t.Helper()
	db := pgtest.New(t)
	name := db.Name + "_" + encoding
	conn := db.Conn(t)
	exec(t, conn, fmt.Sprintf(`CREATE DATABASE %q ENCODING '%s' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`, name, encoding))
	t.Cleanup(func() { // before conn's, which closes it
		exec(t, conn, fmt.Sprintf("DROP DATABASE %q WITH (FORCE)", name))
	})
	return db.Named(t, name)
}

// strange is a name that few encodings have characters for, whose bytes some of
// them take for others, and that has what a terminal or a setting reads in its way.
const strange = "日本\n\\x41'\"%é\x7fк"

// The name shows as the server shows it since version 16, and in all encodings the
// same.
const strangeShown = `lock \xe6\x97\xa5\xe6\x9c\xac\x0a\x41'"%\xc3\xa9\x7f\xd0\xba`

func TestName_isLockedInEveryEncoding(t *testing.T) {
	direct(t, "it serves one encoding")
	t.Parallel()
	for _, e := range []struct{ database, client string }{
		{"LATIN1", ""},
		{"LATIN1", "UTF8"},
		{"WIN1252", ""},
		{"WIN1252", "UTF8"},
		{"KOI8R", "WIN1251"},
		{"EUC_JP", ""},
		{"EUC_JP", "UTF8"},
		{"EUC_JP", "SJIS"},
		{"EUC_KR", ""},
		{"EUC_KR", "UTF8"},
		{"EUC_TW", "BIG5"},
		{"SQL_ASCII", ""},
		{"SQL_ASCII", "UTF8"},
		{"MULE_INTERNAL", ""},
		{"UTF8", "BIG5"},
		{"UTF8", "EUC_JP"},
		{"UTF8", "SJIS"},
		{"UTF8", "GB18030"},
		{"UTF8", "LATIN1"},
		{"UTF8", "SQL_ASCII"},
	} {
		t.Run(e.database+" "+e.client, func(t *testing.T) {
			t.Parallel()
			db := encodedDatabase(t, e.database)
			b := setupOn(t, db, nil, maxConns(3))
			if e.client != "" {
				b.pool, b.locker = b.another(t, nil, maxConns(3), setting("client_encoding", e.client))
			}
			key := advisory.Name(strange)
			for way, acquire := range map[string]func(context.Context) (*advisory.Lock, error){
				"TryLock": func(ctx context.Context) (*advisory.Lock, error) { return b.locker.TryLock(ctx, key) },
				"Lock":    func(ctx context.Context) (*advisory.Lock, error) { return b.locker.Lock(ctx, key) },
				"TryLockAll": func(ctx context.Context) (*advisory.Lock, error) {
					return b.locker.TryLockAll(ctx, key, advisory.ID(7))
				},
				"Acquire": func(ctx context.Context) (*advisory.Lock, error) { return b.locker.Semaphore(strange, 2).Acquire(ctx) },
			} {
				lock, err := acquire(t.Context())
				require.NoError(t, err, way)
				shown := scan[string](t, b, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", int(lock.BackendPID()))
				if way == "TryLock" || way == "Lock" {
					require.Equal(t, strangeShown, shown, way)
				}
				require.NoError(t, lock.Unlock(t.Context()), way)
			}

			holder := b.session(t)
			exec(t, holder, "SELECT pg_advisory_lock("+key.SQL()+")")
			_, err := b.locker.TryLock(t.Context(), key)
			require.ErrorIs(t, err, advisory.ErrNotAcquired)
			got := make(chan error, 1)
			go func() {
				lock, err := b.locker.Lock(t.Context(), key)
				if err == nil {
					err = lock.Unlock(t.Context())
				}
				got <- err
			}()
			b.eventually(t, "the contended call waits on the server", func() bool { return b.waiting(t) == 1 })
			require.Equal(t, 1, scan[int](t, b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1", strangeShown))
			exec(t, holder, "SELECT pg_advisory_unlock("+key.SQL()+")")
			require.NoError(t, <-got)

			s := b.openSession(t)
			lock, err := s.TryLock(t.Context(), key)
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, s.Close(t.Context()))
			b.leakCheck(t)
		})
	}
}

// A name is cut where the server would cut it, and never inside of an escape.
func TestName_isCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	name := ""
	for range 6 {
		name += "日"
		lock, err := b.locker.TryLock(t.Context(), advisory.Name(name))
		require.NoError(t, err)
		shown := scan[string](t, b, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", int(lock.BackendPID()))
		require.LessOrEqual(t, len(shown), 63)
		require.Regexp(t, `^lock (\\x[0-9a-f]{2})+$`, shown)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// A pooler may report an application_name that the server never had.
func TestName_ofAnApplicationInAnotherEncoding(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, locker := b.another(t, nil, setting("application_name", "日本"))
	for range 2 {
		lock, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}
