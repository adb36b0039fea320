// Package connhold pins one connection of a pgxpool for as long as something
// on its session must live, watches it while it idles, and gives it back
// clean or destroys it.
//
// It knows nothing of advisory locks. Package advisory decides what a session
// holds; this package decides whether the session still lives and whether its
// connection may go back to the pool.
//
// # States
//
//	        Watch             the session died
//	Pinned -------> Watched ------------------> Lost
//	   ^  <-------                                |
//	   |  Unwatch                                 |
//	   |                                          |
//	  Pin            Release, Destroy             | Release, Destroy
//	   |   Pinned ---------------------> Ended <--+
//
// Statements run only in Pinned, one at a time. In Watched a goroutine owns
// the socket: it blocks in a read, so that the end of the session is seen when
// it arrives, and every Heartbeat it asks for a sign of life with a deadline,
// so that a link on which nothing arrives any more is seen too.
//
// # Why socket deadlines and not contexts
//
// A pool's owner may replace what pgx does when a context ends, for example
// with a handler that sends a cancel request. Such a request can reach the
// server late and hit the next statement of the session. Everything here is
// therefore bounded by deadlines on the socket, which concern this process
// alone, and contexts are passed to pgx for their values only.
//
// # Clean or destroyed
//
// A connection returns to the pool only when every statement on it succeeded,
// no transaction is open and its owner calls [Hold.Release], by which the
// owner asserts that the session holds nothing. In every other case it is
// taken out of the pool and closed. The server then frees whatever the session
// held (PostgreSQL manual, section 13.3.5).
package connhold
