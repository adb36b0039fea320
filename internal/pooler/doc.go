// Package pooler finds out whether what is between a client and PostgreSQL keeps
// a session: whether all statements of one connection run on one backend.
//
// A pooler in session mode does. One in transaction or statement mode lends a
// backend for a transaction or a statement. From the outside both look alike,
// until a second connection comes.
//
// # What the probe proves
//
// A session keeps its backend as long as its connection is open, so no other
// connection can be on that backend meanwhile. [Probe] opens a second connection
// and watches for the opposite:
//
//	first:  which backend is this?              P
//	second: BEGIN; which backend is this?       P: a backend is lent
//	first:  which backend is this?              not P: a backend is lent
//	second: ROLLBACK
//	first:  which backend is this?              not P: a backend is lent
//
// [Lent] is a proof. [Kept] is none: it means that none of this was seen in any
// round. Where nobody else uses a pooler that lends backends, the first round
// finds it out, whether it prefers the backend that was used last or takes them in
// turn. Other clients can come between, in every round; docs/poolers.md has how
// often that was measured. [Undecided] means that there was no second connection,
// for example because the pooler had no backend left for it.
package pooler
