// Package fencing makes the database refuse the writes of whoever has lost a
// lock, whether it knows of the loss or not.
//
// Each time a resource's lock is granted, a token is drawn that is higher than
// all before it for that resource. A transaction is stamped with it, and
// triggers on the guarded table compare: only the token that was issued last
// may write.
//
//	err := fencer.Do(ctx, "nightly-export", func(ctx context.Context, lease *fencing.Lease) error {
//		return lease.InTx(ctx, pool, func(tx pgx.Tx) error {
//			_, err := tx.Exec(ctx, "INSERT INTO exports (day) VALUES (current_date)")
//			return err
//		})
//	})
//
// It needs the schema that package migrations installs, in the database of the
// guarded tables, and [Guard] or [GuardBy] once for each table.
//
// # What it guarantees
//
//   - From the moment a lock call returns, each write to a guarded table with
//     an earlier token of its resource fails, in every isolation level, and
//     even if the new holder never writes. So does a write without a token, and
//     one with a token that was never issued.
//   - A transaction that wrote with the earlier token and is still open then is
//     waited for: it commits or aborts before the lock call returns, and if ctx
//     ends first, the error names the session that it is in. No write of an
//     earlier holder commits after it.
//   - Tokens of a resource only grow: through a crash, because the token is
//     durable before the caller learns of it, whatever synchronous_commit says;
//     through setval and RESTART, because it is put above the last one; and
//     through the promotion of a standby that lost the last tokens, because the
//     timeline counts in its high bits.
//   - The checks are the database's own. Writers in other languages stamp with
//     SELECT fencing.stamp('nightly-export', 7).
//
// # What it does not
//
// The owner of a guarded table, and superusers, can drop or disable its triggers,
// rewrite the table or drop it; an application should connect as neither. [Verify]
// finds what they have switched off. Reads are not refused. What is outside of the
// database can compare tokens only if it can compare numbers: hand them on.
//
// Any role that may lock (fencing.grant_to) can stamp with any token, its own or
// not: the fence is against mistakes and not against lies. To supersede a
// holder it must have the lock first, which the server gives to one session at a
// time; with a free lock, it can make the tokens of past holders worthless.
//
// A resource is forgotten, and its tokens begin anew, when the schema is removed
// or its row is deleted from fencing.resource by the schema's owner.
//
// A copy of the database, by a dump or as a template, carries the tokens as of
// its time, and those that the original issues later are issued there again.
// Verify reports a copy; SELECT fencing.rebase() puts its tokens above. Two standbys
// that are promoted from one primary, both of them, issue the same tokens.
//
// # Partitions and children
//
// A guard covers a table and all that is below it when Guard is called. For a
// partition that is attached later, the rows are checked one by one, which is
// slow, and TRUNCATE of that partition is not; what is written directly to a table
// that is made a child later is not checked. Call Guard again after each, or let a
// superuser create an event trigger that does:
//
//	CREATE EVENT TRIGGER fencing ON ddl_command_end
//		WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE') EXECUTE FUNCTION fencing.on_ddl()
//
// A guarded table can't be attached to another: PostgreSQL refuses, and names the
// trigger fencing_unguard_first. Remove the guard, attach it, and guard the whole.
// For a partitioned table only the event trigger refuses that; Verify reports it.
//
// # Replication
//
// What logical replication applies to a guarded table is not checked: it was,
// where it comes from. Guard the publisher. Sessions that set
// session_replication_role themselves are checked.
//
// # When not to use it
//
// When a row carries its own version and each write compares it (UPDATE ..
// WHERE version = $1), that is a fence already.
//
// # Cost
//
// A guarded statement costs one look at one row, however many rows it writes;
// with GuardBy one look for each resource among its rows. Its transaction holds one
// shared advisory lock for each resource until it ends (pg_locks; the manual,
// section 13.3.5), on hashtextextended(resource, 1), and in repeatable read and
// serializable a row lock too. Drawing a token is one durable commit, on the
// server, in the round trip that grants the lock.
package fencing
