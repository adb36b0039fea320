// Package pgscript is a PostgreSQL server for tests that answers what it is told
// to, for what a real one answers only in a race, or never.
//
//	peer := pgscript.Serve(t,
//		pgscript.On("pg_advisory_unlock(", pgscript.Fail("57014", "canceling statement due to user request")),
//		pgscript.On("pg_backend_pid", pgscript.Hang()))
//	pool, err := pgxpool.New(ctx, peer.DSN())
//
// A statement goes to the handlers in their order, until one has an [Answer]. To
// what no handler answers, the server answers as a session would that gets each
// advisory lock it asks for: it knows the functions of those locks, a few others,
// and the statements about transactions and settings.
//
// It speaks the simple and the extended protocol, so that pgx works in each of
// its modes, and scripts of several statements too. Anybody is let in, without
// encryption. It has no parser: values come from what a text contains, and the
// types of parameters from casts ($1::bigint) or else from the lock functions;
// what is neither is text. Cursors, COPY and cancelling aren't there: a cancel
// request is accepted, counted and forgotten.
package pgscript
