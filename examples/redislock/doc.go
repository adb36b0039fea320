// Redislock shows what a lock with a time to live can't do, and what can.
//
// Alice locks an account in Redis, reads its balance, and is paused for longer than the
// lease lasts. Bob gets the lock, and writes. Alice goes on, and writes what she made of
// the old balance. Without a fence Bob's deposit is lost. With a fence, be it
// PostgreSQL's, Redis's or that of a service behind HTTP, her write is refused.
//
//	go run ./examples/redislock
//
// Alice and Bob are processes, and the pause is SIGSTOP. The program starts a Redis and a
// PostgreSQL unless REDIS_URL and DATABASE_URL name some, and ends with 0 only if each
// balance is what it should be.
package main
