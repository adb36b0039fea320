package pgtest

import "testing"

// StartWith starts a server of t's own from installed binaries, with settings
// such as "max_connections=20" besides those of every server, and returns its
// maintenance database, in which the migrations have been run. It is for what
// would harm the tests that share a server. It ends with the test, or with this
// process, whichever is first. t is skipped where the binaries are not installed.
func StartWith(t testing.TB, settings ...string) *Database {
	t.Helper()
	if _, err := findOwnBinDir(t.Context()); err != nil {
		t.Skip(err)
	}
	db, err := Launch(t.Context(), settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Server.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
