// Package fencing makes the database refuse the writes of whoever has lost a
// lock, whether it knows of the loss or not.
//
// Each time a resource's lock is granted, a token is drawn that is higher than
// all before it for that resource. A transaction is stamped with it, and
// triggers on the guarded table compare: only the token that was issued last
// may write.
//
//	err := fencer.Do(ctx, "nightly-export", func(ctx context.Context, lease *fencing.Lease) error {
//		_, err := lease.Exec(ctx, pool, "INSERT INTO exports (day) VALUES (current_date)")
//		return err
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
//   - Tokens of a resource only grow on one server: through a crash, because the
//     token is durable before the caller learns of it, whatever synchronous_commit
//     says; and through setval and RESTART, because it is put above the last one.
//   - A promotion makes every token from before it stale, at once. The first token
//     of a resource after it is unique: no other standby of the same primary issues
//     it, even if it was promoted to the same timeline. It is also above all earlier
//     ones as long as the clocks of the servers agree to within the time that has
//     passed. Fresh installations count 1, 2, 3; after a promotion tokens have 14
//     digits or more, and stay below 2^53 until the year 2311.
//   - The checks are the database's own. Writers in other languages stamp with
//     SELECT fencing.stamp('nightly-export', 7).
//
// # What it does not
//
// The owner of a guarded table, and superusers, can drop or disable the
// triggers, rewrite the table, or make it a part of another, through which it is
// written unchecked; an application should connect as neither. [Verify] tells
// what was switched off, but not what was switched on again since. Reads are not
// refused. What is outside of the database can compare tokens only if it can
// compare numbers: hand them on.
//
// What logical replication applies is not checked, because it was where it comes
// from: guard the publisher. Sessions that set session_replication_role
// themselves are checked.
//
// A token does not separate the writes of one holder from each other. A transaction
// whose commit got no answer may still be under way, and a later one with the same
// token may overtake it. Unlock and lock again instead: no token is issued until
// the transaction has ended.
//
// A resource is forgotten, and its tokens begin anew, when the schema is removed.
// A copy of the database, by a dump or as a template, carries marks as of its time:
// it issues again what the original issues later, until fencing.rebase() is called
// there, as Verify says. A server that was restored from a snapshot of its disk looks
// to itself like the original, and Verify can't tell: call fencing.rebase() there.
//
// Some managed services don't tell the server's timeline (Amazon Aurora without logical
// replication is one). Everything works there, but a promotion alone makes no token
// stale; the next token of the resource does. [Report.Notes] says so.
//
// A guarded write can be part of a prepared transaction, also one that is committed
// after a promotion. Nobody gets a new token for its resource until it has ended, and
// Verify names it. A transaction that has drawn a token can't be prepared.
//
// A caller of fencing.issue that sets its constraints immediate and then turns
// synchronous_commit off, or does so in a deferred trigger of its own that fires later or
// in a cursor WITH HOLD that is open at the commit, has a token that a crash can forget. One that
// sets its constraints immediate can also prepare the transaction. Locks of this package do none
// of that.
//
// # Partitions and children
//
// [Guard] and [GuardBy] guard all that belongs to a table at that time. What is
// added later is guarded by calling them again, and until then Verify says so:
// the rows of a new partition are checked one by one, and a TRUNCATE of it is
// not; what is written to a new child directly is not checked at all. A
// superuser can have it guarded at once, in the same transaction:
//
//	CREATE EVENT TRIGGER fencing ON ddl_command_end
//	    WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE',
//	        'IMPORT FOREIGN SCHEMA', 'CREATE SCHEMA', 'CREATE TRIGGER', 'ALTER TRIGGER')
//	    EXECUTE FUNCTION fencing.on_ddl();
//
// Roles that add partitions to a guarded table need the schema then, by
// fencing.grant_to; others are left alone. A foreign or an unlogged table, which
// can't be guarded, can't be added then.
//
// A trigger of yours can change a row that MERGE moves to another partition after
// the row was checked. On a partitioned table of [GuardBy] these can: BEFORE INSERT
// for each row, and BEFORE UPDATE for each row with a name that sorts after
// zz_fencing_move. Where the table has one, each row is checked. When one is added
// later, guard the table again. Until then Verify reports it; the event trigger does
// it at once.
//
// A guarded table can't be attached to another: PostgreSQL refuses, and names the
// trigger fencing_unguard_first. Remove the guard, attach it, and guard the whole.
// For a partitioned table only the event trigger refuses that; Verify reports it.
//
// # Privileges
//
// A role needs nothing but SELECT fencing.grant_to('app') to lock, to stamp and
// to read what Verify reports; fencing.revoke_from takes it back. It can't move a
// mark, draw a number, change a guard or write to this schema. What it can do,
// with no more than that:
//
//   - Supersede a past holder: fencing.issue draws a token for the session that
//     holds the resource's advisory lock, or for anyone while nobody holds it. As
//     long as a holder's session has the lock, nobody else gets a token.
//   - Stamp with a token that it was told or has read, as the holder of it. Marks
//     are readable for whoever may use the schema: tokens keep those out who are
//     late, not those who lie. Privileges on the guarded table do that.
//   - Keep others from locking, by holding the advisory lock of any resource, and
//     from writing, by that of hashtextextended(resource, 1); in PostgreSQL every
//     role can hold any advisory lock.
//
// A role without the grant that may write to a guarded table is refused like any
// other. The refusal tells it neither the current token nor whether its own is too low
// or too high. It can still guess a small one.
//
// The owner of a table, with the same grant, guards and unguards it. Guard and
// Unguard ask for nothing that belongs to the schema's owner. [GuardBy] has the schema
// make a function for the name of the column, which checks that column and nothing else.
//
// # When not to use it
//
// When a row carries its own version and each write compares it (UPDATE ..
// WHERE version = $1), that is a fence already.
//
// # Cost
//
// A statement on a table of [Guard] costs one look at one row, however many rows
// it writes (a DELETE keeps its rows aside besides, which is the price of
// fencing_unguard_first); on a table of [GuardBy] one for each resource among its rows.
// A long-running snapshot, such as that of pg_dump, doesn't change that: a check finds the
// current mark without walking the older ones. One transaction can be stamped for thousands
// of resources. Each takes one entry in the server's lock table until the transaction ends,
// which has max_locks_per_transaction * (max_connections + max_prepared_transactions)
// entries in all (the manual, section 20.12). A row that goes to another partition of
// such a table is looked at by itself, and so is each row of a partition that was added
// later. Until the transaction ends it shares one advisory lock for each resource (the manual, section 13.3.5),
// on hashtextextended(resource, 1); in repeatable read and serializable the mark's
// row is locked FOR SHARE besides. Drawing a token is one durable commit, on the
// server, in the round trip that grants the lock.
package fencing
