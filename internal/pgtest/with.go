package pgtest

import "testing"

// StartWith starts a server of t's own from installed binaries, with settings
// such as "max_connections=20" besides those of every server, and returns its
// maintenance database, in which the migrations have been run. It is for what
// would harm the tests that share a server. It ends with the test, or with this
// process, whichever is first. t is skipped where the binaries are not installed.
func StartWith(t testing.TB, settings ...string) *Database {
	t.Helper()
	bin, err := findOwnBinDir(t.Context())
	if err != nil {
		t.Skip(err)
	}
	as, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	db := startMember(t, bin, as, source{settings: settings}, password())
	if err := migrateDSN(t.Context(), db.DSN); err != nil {
		t.Fatal(err)
	}
	return db
}
