// Package advisory takes PostgreSQL advisory locks that hold across processes,
// each on a connection of its own that is pinned from the grant to the unlock.
//
//	err := locker.Do(ctx, advisory.Name("nightly-export"), func(ctx context.Context, _ *advisory.Lock) error {
//		return export(ctx)
//	})
//
// It needs nothing installed in the database.
//
// # What there is
//
//	Locker.Lock, TryLock, Do, TryDo    one lock, waiting for it or not
//	Locker.RLock, TryRLock             in the shared mode
//	Locker.LockAll, TryLockAll         several, all or none
//	Locker.Session                     many on one connection
//	Locker.Semaphore                   up to a number of holders
//	Locker.Lead                        leader election
//	Lock.Tx                            a transaction on the session that holds
//	LockTx and its siblings            for the rest of the caller's transaction
//	Inspect                            who holds, and who waits
//
// # What it guarantees
//
//   - While the session that holds a lock lives, the server grants the lock to
//     nobody else (PostgreSQL manual, section 13.3.5). A crashed holder's lock
//     is free as soon as the server sees its connection end; nothing has to
//     expire.
//   - A lock, its unlock and all between run on one session, which no other
//     code gets. Its connection returns to the pool only once the server has
//     said that the session held the lock until then and holds nothing now.
//     Else it is closed.
//   - A context bounds the wait for a lock and never the hold. When it ends the
//     call returns at once, and nothing stays locked on its behalf.
//   - An error of a call that locks means that the caller holds nothing, and nil
//     from [Lock.Unlock] means that the lock was held until then. A server that
//     can't be reached may keep a lock for a session that has been given up
//     here, until it notices that.
//
// # What it does not
//
// A process that is stopped, by SIGSTOP, a hypervisor or a long collection of
// garbage, can't tell that the server has given it up and its lock to another.
// When it goes on it still believes that it holds, for as long as it takes to
// read the news. No lock can close this gap. Package fencing makes the
// database refuse what such a process then writes.
//
// A network that goes silent opens a gap too, which is bounded: see below.
//
// Locks are local to a database, and to a server: a standby, which is refused,
// has locks of its own, and so has a database that was promoted while another
// still runs. They need a session, which a pooler in transaction mode does not
// keep; it is refused, and [LockTx] is for those behind it. They are not
// re-entrant, not upgradable and not strictly fair between sessions.
//
// # When not to use it
//
// Where a unique constraint, INSERT .. ON CONFLICT or SELECT .. FOR UPDATE SKIP
// LOCKED says the same, it says it better: it can't be lost. Work that may be
// done twice without harm needs no lock.
//
// # Losing a lock
//
// [Lock.Done] closes, and [Lock.Context] ends, when the loss is noticed:
//
//	what happened                           noticed            LostError.Reason
//	backend terminated, server shut down    at once            LostTerminated
//	connection closed or reset              at once            LostDisconnected
//	network silent                          by a heartbeat     LostUnresponsive
//	the same in Lock.Tx                     by a bound         LostUnresponsive
//	pooler lends the session's backend      by a heartbeat     LostPooler
//	lock released behind the Lock's back    at Unlock          LostNotHeld
//	this process stopped                    when it goes on    as above
//
// A lock that is lost stays lost: nothing takes it again by itself. pgx does not
// understand the end of a session from a server whose lc_messages has another word
// for FATAL, as Russian and Polish have; that reads as LostDisconnected.
//
// # When the network goes silent
//
// The holder knows first. From the start of the last sign of life that the server
// has answered:
//
//	Heartbeat + HeartbeatTimeout    later, Done is closed
//	VanishTimeout                   later at the earliest, the server gives up the session and frees its locks
//
// A [Config] in which the first is not less than the second is refused. The promise
// assumes that the process runs, that process and network delay nothing by more than the
// difference, and that the client of the server is this process: behind a pooler or a
// TCP proxy the server watches that instead. It is about silence only. An
// administrator, a restart or a failover frees a lock at once.
//
// It does not hold while the function of a [Lock.Tx] runs, during which no heartbeat is
// sent. Done closes within [Config.TxTimeout] then, which may be later than
// VanishTimeout. That transaction can't commit: its session is the one that held the
// lock.
//
// # Connections
//
// Each lock that is held pins one connection of the pool, as does each call that
// asks the server. Calls that wait for one key use one connection together; those
// that wait for a lock which this process holds use none. A [Locker] leaves
// [Config.Reserve] connections to others and answers [ErrPoolExhausted] instead
// of taking them, because the work that a lock guards usually needs a connection
// too. A [Session] pins one for all of its locks.
//
// While a session holds locks, or waits for one that is no semaphore's slot, its
// application_name says which, for pg_stat_activity, and its timeouts are those of a
// holder: the server does not end it for idling, and ends it when its client vanishes.
// The name and idle_session_timeout are put back when the connection returns to the pool.
// So are tcp_keepalives_* and tcp_user_timeout where a holder needs them more lenient than
// they were. Where a holder needs them stricter, they are set once for the connection and
// stay: they only say how soon the server notices a client that is gone. In the name, bytes that are not printable ASCII are
// written as \x and two hexadecimal digits.
//
// # How a lock is acquired
//
// Calls of one Locker for one lock wait in a queue, in the order in which they came. One
// of them, or a goroutine for all of them, drives an attempt on one connection:
//
//	            pin             probe          try
//	unconnected ---> connected -------> ready -----> granted ---> the Lock
//	                     ^                |  |          ^
//	                     |       refused  |  | ctx ends | free
//	                     |                |  v          |
//	  settings have      |                | abandoned --+
//	  changed: probe     |                v             |
//	  again -------------+--- asked --- refused         |
//	                                      | wait        |
//	                                      v             |
//	                                   waiting ---------+  300 ms at a time
//	                                    |   ^           |
//	                         all seats  v   | a seat    |
//	                         are taken parked ----------+  asks now and then
//
// An error, anywhere, ends the connection, because its session may hold the lock all the
// same; the call returns the error, unless the connection was dead before it was used.
// When nobody waits any more, the session gives back what it has, and the connection
// returns to the pool. Two more states end like granted and refused: blocked, in which
// the lock is held and package fencing waits for a transaction of an earlier holder, and
// differing, in which a semaphore is in use with another limit.
//
// Of all sessions that wait for one lock exclusively, on whatever machine, four wait on
// the server. The others are parked, so that hundreds of them cost it little, and ask
// again after a quarter of the time that they have waited: 32 of them after 200 ms at
// most, the others after 5 s. The order among them is not that in which they came. Seats
// and places of waits are advisory locks themselves, of two ints, the first of which is
// -1746239858 or -1746239857; nobody else is to lock those.
//
// A panic in a handler of the pool, such as a tracer, OnNotice or PrepareConn, is
// returned as an error by the call for which the handler was called. That call
// takes no lock, and an Unlock frees its lock all the same. Where no call is under
// way, [Config.Logger] gets it, at level Error.
package advisory
