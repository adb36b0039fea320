// Package pgtest provides one PostgreSQL server for the tests and examples of
// this module, and a database of its own for each test.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		t.Parallel()
//		db := pgtest.New(t)
//		pool := db.Pool(t)     // what is being tested uses this
//		observer := db.Conn(t) // and this looks at pg_locks
//	}
//
// # Where the server comes from
//
// The first of these that can provides it. Which one it was, and why not those
// before it, is printed in one line. There is no skip: without a server, tests
// fail, and say what to install.
//
//	url        the server that DATABASE_URL names, as a URL or as keywords and
//	           values. Its user must be a superuser. If it is set, no other
//	           provider is tried, and it is never stopped.
//	docker     a container of PGADVISORY_TEST_IMAGE (postgres:18-alpine).
//	installed  the newest server found in PATH, with pg_config, or where packages
//	           put it; or the one in the folder PGADVISORY_TEST_BINDIR.
//	embedded   a download, kept in the user's cache. Not for root.
//
// PGADVISORY_TEST_PROVIDER forces one by its name.
//
// # When the server goes
//
// A server that was started here is gone, with its data directory, when the
// process that started it has ended. That includes SIGKILL, a panic, a test
// timeout and os.Exit:
//
//	test process --- pipe ---> watchdog (/bin/sh, own session) ---> postgres
//
// The process holds the only write end of the pipe, which no child inherits, and
// the watchdog reads. When the process ends, the kernel closes the pipe; the
// watchdog then stops the server, kills it if it doesn't stop, and removes its
// files. [Server.Close] closes the pipe and waits for the watchdog's end.
// Containers are removed by testcontainers' reaper, or by such a watchdog and
// the docker command if TESTCONTAINERS_RYUK_DISABLED is true.
//
// Not guaranteed: that anything is tidied up if the watchdog is killed too, or
// the machine goes down; and that a given server is rid of the databases of a
// process that was killed. Those have names that begin with "pgtest_".
//
// # What else a test can have
//
// [Database.PgBouncer], [Pgpool] and [Database.HAProxy] put a pooler or a proxy in
// front of a database, [StartWith] starts a server with other settings, and
// [StartPair] a primary and a standby. They need installed programs, which not
// every machine has: without them a test is skipped, and says what to install. CI
// installs them and lets no test be skipped. Each has a watchdog like that of a
// server.
// [NewWith] is [New] on a server that offers what an ordinary one, given by
// DATABASE_URL, may not.
//
// # Isolation
//
// Advisory locks are scoped to a database: schemas don't separate them. So each
// test gets a database, cloned from a template that the migrations were run in
// once per process, or that of an earlier test which left it as it got it, under
// a new name. The template's name is unique; processes that share a given server
// don't meet.
//
// Servers started here keep their files in /dev/shm where that has 4 GiB to
// spare and TMPDIR is not set, and in the temporary folder otherwise. They run
// without fsync, accept 200 connections, and have
// wal_level=logical and max_prepared_transactions=5.
package pgtest
