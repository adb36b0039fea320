// Package redistest provides Redis servers for the tests and examples of this
// project.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		client := redis.NewClient(must(redis.ParseURL(redistest.URL(t)))) // shared by the package
//		server := redistest.Start(t)                                      // of this test alone
//	}
//
// [URL] is that of the first of these that can provide a server:
//
//	url        the server that REDIS_URL names. If it is set, no other provider
//	           is tried, and the server is never stopped.
//	docker     a container of PGADVISORY_TEST_REDIS_IMAGE (redis:8-alpine).
//	installed  the program redis-server in PATH.
//
// PGADVISORY_TEST_REDIS_PROVIDER forces one by its name. There is no skip: without
// a server, tests fail, and say what to install. Tests share that server, so each
// uses a key prefix of its own.
//
// [Start], and [Launch] for what is not a test, start a server that can be
// frozen, killed and restarted. It is a process of the installed program.
// Without the program a test is skipped, and says what to install.
//
// A server that was started here ends when the process that started it has ended,
// however it ended: a shell waits for the end of a pipe that only that process
// holds, kills the server and removes its files. Containers are removed by
// testcontainers' reaper.
package redistest
