// Package redislease takes locks in Redis: leases with a time to live, which the holder
// stops to trust before Redis lets go.
//
//	leaser, err := redislease.New(client, nil)
//	if err != nil {
//		return err
//	}
//	defer leaser.Close(ctx)
//	err = leaser.Do(ctx, "nightly-export", func(ctx context.Context, lease *redislease.Lease) error {
//		return export(ctx, lease.Token()) // ctx ends if the lease is lost
//	})
//
// It is right where what is locked is not in PostgreSQL, or where no connection can be
// held while a lock is. Where the work writes to PostgreSQL, package advisory needs no
// time to live, and package fencing makes the database refuse late writers. With
// fencing.NewOver it does that for the locks of this package, too.
//
// # How it works
//
// A lock is a key that Redis removes after [Config.TTL]. One script sets it for a random
// owner, if it is not there, and counts the token; another deletes it, if the owner still
// has it. Every third of the TTL one round trip renews all leases of a [Leaser].
//
//	           granted                   renewed, every third of the TTL
//	waiting ------------> held <---------------------------------------------+
//	                       |  |                                              |
//	                       |  +---- no answer: tried again until SafeUntil --+
//	                       |  |
//	          Unlock, Close|  | SafeUntil has come, or Redis has another owner or none
//	                       v  v
//	                      ended: Done is closed, Err says why
//
// A holder trusts its lease until the time at which it sent the last request that
// succeeded, plus the TTL, less the margin. Redis counts the TTL from a later time on. So
// the holder stops first, whatever delays an answer, as long as the two clocks differ
// by less than the margin while one TTL passes. The holder's clock counts time in
// which the machine sleeps (CLOCK_BOOTTIME on Linux).
//
// # What it guarantees
//
//   - While Redis keeps its data and the clocks run evenly, one holder at a time trusts
//     its lease.
//   - A lease ends for its holder at SafeUntil, also when Redis hangs or the process was
//     stopped: [Lease.Err] reads the clock. Timers of a process that was stopped run when it
//     goes on; those of a machine that slept look at the clock every 100 ms.
//   - Tokens of a resource grow with each holding. A command that the client repeats
//     because its answer was lost is one holding, with one token.
//   - After an error of a locking method nothing stays behind: what Redis granted
//     meanwhile is released in the background, and at the latest by its TTL.
//   - nil from Unlock means that the lease was held until then.
//
// # What it does not
//
//   - A process can be paused between its last look at the lease and its write. Only a
//     fence at the place of the write helps, see below.
//   - A restart without persistence, a failover to a replica that lags, FLUSHALL, an
//     eviction (set maxmemory-policy to noeviction) and DEL lose a lock. Two believe
//     then that they hold, until the first one's next renewal. WAIT makes that rarer and
//     not impossible. Restarts and failovers can also set the counter back, so that tokens
//     come again; fencing.NewOver draws tokens in PostgreSQL instead.
//   - A server clock that is set forward ends leases before their holders stop.
//   - A machine restored from a snapshot has its clock of then for a moment.
//   - The order of those who wait in different processes is not kept. A lock is not
//     re-entrant.
//
// # Failures
//
//	Redis does not answer      renewals are tried again until SafeUntil, then the lease is
//	                           lost (LostExpired); the same for BUSY, LOADING, READONLY,
//	                           NOREPLICAS and other errors
//	the scripts were flushed   renewed in the same round all the same
//	the key is gone            lost (LostMissing) at the next renewal
//	another has the key        lost (LostTaken) at the next renewal
//	the holder crashes         free after a TTL at most
//	PUBLISH is not allowed     those who wait are woken by the end of the lease only;
//	                           logged once
//	EVALSHA is not allowed     ErrUnavailable at the first call, which says so
//
// # Fences
//
//   - What is in PostgreSQL: fencing.NewOver.
//   - What is in Redis: [Fence], whose writes are refused if a higher token has written.
//   - Files, and services behind HTTP: package gate.
//
// # Redis Cluster
//
// The keys of a resource are in one slot. Each node has a round trip of its own for
// renewals, so that one which does not answer delays no others. Pub/sub messages reach all
// nodes. Redis's own Redlock, over several independent servers, is not built; docs/choosing.md says why.
//
// # Cost
//
// Lock and Unlock are a round trip each, on connections of the Leaser's own; see
// [Config.ShareClient]. A resource's counter stays for ever, about 100
// bytes of Redis's memory; [Config.Counters] lets many names share some. However many
// wait in one process for one lock, they ask Redis as often as one does, and
// all subscriptions of a Leaser share one connection.
package redislease
