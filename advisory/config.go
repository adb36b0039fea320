package advisory

import (
	"fmt"
	"log/slog"
	"time"
)

// NoReserve is the [Config.Reserve] of a Locker that may use every connection
// of its pool, which is right for a pool that is kept for locks.
const NoReserve = -1

// Config is how a [Locker] behaves. The zero Config, and a nil one, mean the
// documented defaults.
type Config struct {
	// Reserve is how many connections of the pool the Locker leaves to others.
	// Defaults to 1 for New and to none for Open; NoReserve means none. A pool
	// must be larger than its reserve. Two Lockers on one pool don't know of
	// each other's connections: use one Locker for each pool.
	Reserve int

	// Heartbeat is how often a held lock's session is asked for a sign of
	// life. Defaults to 5 s.
	Heartbeat time.Duration

	// HeartbeatTimeout is how long the server may take to answer: a heartbeat, a
	// statement of the Locker beyond the time that this is meant to wait on the
	// server, and the sign of life that a pool asks of a connection that has
	// idled. Defaults to 5 s. A loss on which no news arrives, as when a network
	// swallows everything, is noticed within Heartbeat + HeartbeatTimeout, but for
	// the time in which the function of a [Lock.Tx] runs.
	HeartbeatTimeout time.Duration

	// VanishTimeout is how long the server keeps the lock of a holder that
	// vanished without a word, with its machine or its network: it is given to
	// the session's tcp_keepalives_* and tcp_user_timeout, and a third of it, in
	// [Lock.Tx] (from PostgreSQL 14 on Linux), to client_connection_check_interval.
	// Defaults to 30 s; the server counts in seconds. Behind a TCP proxy or a
	// pooler the server's client is that, and does not vanish: the lock is kept
	// until the proxy notices, which has settings of its own for that; see
	// docs/poolers.md. On a Unix socket nothing vanishes.
	//
	// It must be greater than Heartbeat + HeartbeatTimeout. The holder then knows
	// first when the network goes silent; see "When the network goes silent" in
	// the package documentation. Leave some time between the two: the difference
	// is what a delay of the process or of the network may use up.
	VanishTimeout time.Duration

	// TxTimeout bounds a [Lock.Tx], from the answer to its BEGIN to the end of its
	// COMMIT or ROLLBACK. When it is over the session is ended, Done closes and the
	// locks of the session are lost. Defaults to 1 h. No heartbeat is sent meanwhile, so
	// this is also how long a silent network can go unnoticed: set it to little more than
	// what the longest transaction takes.
	TxTimeout time.Duration

	// SessionPooler allows a pooler between the pool and the server, which must
	// be in session mode. Defaults to false: the methods that lock return
	// ErrPooler if the handshake told another process ID than the backend.
	// Neon, Supavisor, PgDog, Pgpool-II and RDS Proxy do that even where they
	// keep the session; docs/poolers.md says what to set for each.
	//
	// With it the Locker looks for proof of the opposite. A new connection is
	// compared with a second one, which is opened for that, at most once a minute
	// and for HeartbeatTimeout at most. Each heartbeat has to come from the
	// backend that holds, or the lock is lost for the reason [LostPooler]. Both
	// can miss a pooler that lends backends; neither takes one that keeps
	// sessions for another.
	SessionPooler bool

	// UnlockTimeout bounds Unlock, whatever its context says. Defaults to 5 s.
	UnlockTimeout time.Duration

	// Observer is told of each lock that is granted or not, and of each end.
	// Defaults to nobody.
	Observer Observer

	// Logger gets a line for each of these: at level Warn for a lock that was
	// not held to its end and for a call that failed, for example because the pool
	// is exhausted or the server is down; at level Debug for the others, among
	// them a lock that another holds and a call whose ctx has ended. At level
	// Error it gets the panics that no call returns; see [Observer]. Defaults to
	// silence.
	Logger *slog.Logger
}

const (
	defaultReserve       = 1
	defaultHeartbeat     = 5 * time.Second
	defaultAnswerTimeout = 5 * time.Second
	defaultVanishTimeout = 30 * time.Second
	defaultTxTimeout     = time.Hour
	longestVanish        = 24 * 24 * time.Hour // in milliseconds, an int of the server
)

// withDefaults returns a validated copy.
func (c *Config) withDefaults(reserve int) (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	if out.Reserve < NoReserve {
		return Config{}, fmt.Errorf("advisory: Config.Reserve is %d; give the number of connections to leave to others, 0 for the default or NoReserve", out.Reserve)
	}
	switch out.Reserve {
	case 0:
		out.Reserve = reserve
	case NoReserve:
		out.Reserve = 0
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"Heartbeat", &out.Heartbeat, defaultHeartbeat},
		{"HeartbeatTimeout", &out.HeartbeatTimeout, defaultAnswerTimeout},
		{"VanishTimeout", &out.VanishTimeout, defaultVanishTimeout},
		{"TxTimeout", &out.TxTimeout, defaultTxTimeout},
		{"UnlockTimeout", &out.UnlockTimeout, defaultAnswerTimeout},
	} {
		if *d.value < 0 {
			return Config{}, fmt.Errorf("advisory: Config.%s is %s; a duration can't be negative, and 0 means %s", d.name, *d.value, d.zero)
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if out.VanishTimeout > longestVanish {
		return Config{}, fmt.Errorf("advisory: Config.VanishTimeout is %s; the server can't count above %s", out.VanishTimeout, longestVanish)
	}
	if out.VanishTimeout-out.HeartbeatTimeout <= out.Heartbeat { // the sum could overflow
		return Config{}, fmt.Errorf("advisory: Config.VanishTimeout is %s and must be greater than Heartbeat + HeartbeatTimeout, %s + %s: "+
			"the server could give the lock to another before its holder knows that it is lost",
			out.VanishTimeout, out.Heartbeat, out.HeartbeatTimeout)
	}
	return out, nil
}
