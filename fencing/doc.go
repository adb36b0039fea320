// Package fencing makes the database refuse the writes of whoever has lost a
// lock, whether it knows of the loss or not.
//
// Each time a resource's lock is granted, a token is drawn that is higher than
// all before it for that resource. A transaction is stamped with it, and a
// trigger on the guarded table compares: only the token that was issued last
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
// guarded tables, and [Guard] once for each table.
//
// # What it guarantees
//
//   - From the moment a lock call returns, each write to a guarded table with
//     an earlier token of its resource fails, in every isolation level, and
//     even if the new holder never writes. So does a write without a token, and
//     one with a token that was never issued.
//   - A transaction that wrote with the earlier token and is still open then is
//     waited for: it commits or aborts before the lock call returns. No write
//     of an earlier holder commits after it.
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
// The owner of a guarded table, and superusers, can drop or disable the trigger,
// rewrite the table, or make it a partition or a child of another, through which
// it is written unchecked; an application should connect as neither. Reads are
// not refused. Only plain tables can be guarded. What is outside of the
// database can compare tokens only if it can compare numbers: hand them on.
//
// The apply worker of logical replication, and a restore of data into a
// guarded table, write without a stamp: unguard the table for that time.
//
// A resource is forgotten, and its tokens begin anew, when the schema is removed
// or its row is deleted from fencing.resource by the schema's owner. A dump
// carries marks as of its time: what was drawn later is drawn again where it is
// restored.
//
// # When not to use it
//
// When a row carries its own version and each write compares it (UPDATE ..
// WHERE version = $1), that is a fence already.
//
// # Cost
//
// A guarded statement costs one look at one row, however many rows it writes;
// the row is locked FOR SHARE until the transaction ends. Drawing a token is one
// durable commit, on the server, in the round trip that grants the lock.
package fencing
