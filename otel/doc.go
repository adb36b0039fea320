// Package otel turns what happens to advisory locks, and to writes that are fenced,
// into OpenTelemetry metrics and spans.
//
//	observer, err := otel.NewObserver(nil)
//	if err != nil {
//		return err
//	}
//	locker, err := advisory.New(pool, &advisory.Config{Observer: observer})
//	if err != nil {
//		return err
//	}
//	fencer, err := fencing.New(locker, &fencing.Config{Observer: observer})
//
// A file that uses go.opentelemetry.io/otel as well imports one of the two by
// another name.
//
// # Metrics
//
//	name                           instrument     unit           attributes
//	pgadvisory.lock.wait.duration  histogram      s              pgadvisory.lock.mode, pgadvisory.lock.outcome
//	pgadvisory.lock.hold.duration  histogram      s              pgadvisory.lock.mode, pgadvisory.lock.outcome
//	pgadvisory.lock.waiting        UpDownCounter  {call}         pgadvisory.lock.mode
//	pgadvisory.lock.held           UpDownCounter  {lock}         pgadvisory.lock.mode
//	pgadvisory.lead.terms          UpDownCounter  {term}         pgadvisory.lead.key
//	pgadvisory.lock.lost           counter        {lock}         pgadvisory.lost.reason
//	pgadvisory.write.refused       counter        {transaction}  pgadvisory.write.refusal
//
// wait.duration is recorded once for each call that locks, hold.duration once for
// each lock that was granted. waiting is how many such calls have not returned yet.
// held is how many locks this process believes that
// it holds; a lost lock counts until its loss is noticed. One lock of several
// keys counts once. lead.terms is 1 while this process leads an election, and
// absent otherwise. write.refused counts the calls of InTx, Exec and SendBatch of
// a fencing.Lease that failed because the database refused a write.
//
// All but the histograms and lead.terms are there from the start, with each of
// their values at 0, so that an alert sees the first increase. They are right also
// where the MeterProvider is set later.
//
//	attribute                values
//	pgadvisory.lock.mode     exclusive, shared; semaphore for a slot of one
//	pgadvisory.lock.outcome  of a wait:
//	                         granted
//	                         not_acquired    another has it, and the call does not wait
//	                         canceled        ctx ended, or the Locker was closed
//	                         pool_exhausted  also if ctx ended for that reason
//	                         error           anything else
//	                         of a hold:
//	                         unlocked        held to its end, also if Close ended it
//	                         lost
//	                         error           the server refused the unlock, and the
//	                                         session was ended instead
//	pgadvisory.lost.reason   an advisory.LostReason:
//	                         terminated, disconnected, unresponsive,
//	                         other backend, not held
//	pgadvisory.write.refusal stale, unstamped, unknown_token
//	pgadvisory.lead.key      the key of an election, as Key.String shows it
//
// No metric but lead.terms has the key as an attribute. There are as many keys as a program
// makes, one for each customer or each day, and every one would be a time series
// of its own. Keys are on the spans, to which the exemplars of the histograms lead.
//
// # Spans
//
//	name             from            to                                 kind
//	pgadvisory.lock  the call        its return                         internal
//	pgadvisory.hold  that return     the end of the hold, without the   internal
//	                                 time that the unlock took
//
// Both are children of the span in the call's context, so that a trace shows the
// wait and the hold next to each other, above the work that was done under the
// lock. The hold is not a child of the wait, which is over when it begins, and
// links to it instead: where the context has no span, each is the root of a
// trace of its own. It often ends long after its parent, as a leader's does,
// and is exported only then. A process that dies takes the span with it.
//
// They are internal spans, and not client ones, because a wait is not one call
// to the server: many waits share its answers, and some never ask it.
//
//	attribute                  of
//	db.system.name             both: postgresql
//	db.namespace               both: the database
//	server.address             both; of several, the first that the pool is configured with
//	server.port                both, but for a Unix socket
//	network.peer.address       both, if the lock was granted and not by way of a Unix
//	network.peer.port          socket: the server's, or that of what is in between
//	pgadvisory.lock.keys       both; as Key.String shows them, and the slot of a
//	                           semaphore if one was granted
//	pgadvisory.lock.semaphore  both, for a slot of one: its name
//	pgadvisory.lock.mode       both
//	pgadvisory.lock.outcome    both
//	pgadvisory.lock.lead       both, for a term of Lead: true
//	pgadvisory.lock.token      both, for a lease of package fencing
//	pgadvisory.lock.try        wait: whether it was by a method that does not wait
//	pgadvisory.backend.pid     both, if the lock was granted; as in pg_stat_activity
//	pgadvisory.lost.reason     hold, if it was lost
//	error.type                 both, if the status is Error: the SQLSTATE if the
//	                           server has sent one, else the reason of the loss
//	                           or the outcome, and _OTHER if that is "error"
//
// A refused write is an event of the span in the context of such a call,
// pgadvisory.write.refused, with the attributes pgadvisory.write.refusal,
// pgadvisory.write.resource and pgadvisory.lock.token.
//
// The status is Error, with the error's text, for every outcome but granted,
// not_acquired and unlocked.
//
// # What it does not
//
// It sends nothing by itself: without providers, the program's or those of
// [Config], all of it costs little and goes nowhere. A loss is told when it is
// noticed; what that means for the lock is said at [advisory.Lock].
package otel
