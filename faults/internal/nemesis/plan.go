//go:build unix

package nemesis

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"
)

// Kind is one kind of fault.
type Kind string

// The kinds. Those of a worker hit the holder of a key where there is one.
const (
	Pause     Kind = "pause"      // SIGSTOP, and SIGCONT later
	Usurp     Kind = "usurp"      // the lock is lost while its process is stopped, and goes to another; its other connections live
	PauseCut  Kind = "pause-cut"  // all connections are cut while the process is stopped
	Kill      Kind = "kill"       // SIGKILL, and another process in its place
	Terminate Kind = "terminate"  // pg_terminate_backend of the session that holds
	Shoot     Kind = "shoot"      // pg_terminate_backend of any session of the workers
	Cancel    Kind = "cancel"     // pg_cancel_backend of all sessions that are busy, again and again
	Numb      Kind = "numb"       // SIGSTOP of the server's process that serves the holder
	Cut       Kind = "cut"        // all connections of a worker end with a FIN
	Reset     Kind = "reset"      // with a RST
	HalfOpen  Kind = "half-open"  // nothing arrives any more, on either side
	Mute      Kind = "mute"       // nothing arrives at the server
	Deaf      Kind = "deaf"       // nothing arrives from the server
	Refuse    Kind = "refuse"     // connections are cut, and new ones refused for a while
	Hang      Kind = "hang"       // connections are cut, and new ones are never answered for a while
	Slow      Kind = "slow"       // everything takes its time
	Fast      Kind = "fast"       // the server is restarted in good order
	Immediate Kind = "immediate"  // the server is restarted as after a crash
	Switch    Kind = "switch"     // the standby takes over, without loss
	FailOver  Kind = "fail-over"  // the standby takes over, and the last commits are lost
	Forget    Kind = "forget"     // fail-over, and what is lost is the grant that superseded a stopped process
	LockTable Kind = "lock-table" // the server has no room for one more lock
	Hog       Kind = "hog"        // the worker's pool is exhausted

	RedisKill  Kind = "redis-kill"  // SIGKILL, and a start without its data
	RedisStop  Kind = "redis-stop"  // SIGSTOP, and SIGCONT later
	RedisPause Kind = "redis-pause" // CLIENT PAUSE
	RedisFlush Kind = "redis-flush" // FLUSHALL
	RedisDel   Kind = "redis-del"   // other software deletes the lock
	RedisCut   Kind = "redis-cut"   // all connections of a worker with Redis end
	RedisDeaf  Kind = "redis-deaf"  // nothing arrives from Redis
	RedisLate  Kind = "redis-late"  // the answers of Redis come late, and then nothing arrives there
)

// ofRedis are the kinds that need keys which are locked there.
var ofRedis = []Kind{RedisKill, RedisStop, RedisPause, RedisFlush, RedisDel, RedisCut, RedisDeaf, RedisLate}

// WithoutRedis is what is left of weights where no key is locked in Redis.
func (w Weights) WithoutRedis() Weights {
	left := maps.Clone(w)
	for _, kind := range ofRedis {
		delete(left, kind)
	}
	return left
}

// Weights says how often each kind is chosen.
type Weights map[Kind]int

// All has what is cheap often and what takes seconds seldom.
var All = Weights{
	Pause: 8, Usurp: 12, PauseCut: 8, Kill: 8, Terminate: 10, Shoot: 6, Cancel: 6, Numb: 3, Cut: 8, Reset: 8,
	HalfOpen: 4, Mute: 3, Deaf: 3, Refuse: 4, Hang: 3, Slow: 5, Fast: 2, Immediate: 2, Switch: 1, FailOver: 1, Forget: 1,
	LockTable: 4, Hog: 5,
	RedisKill: 4, RedisStop: 3, RedisPause: 2, RedisFlush: 4, RedisDel: 4, RedisCut: 4, RedisDeaf: 3, RedisLate: 2,
}

// Only is All without those that are not named.
func Only(names []string) (Weights, error) {
	weights := make(Weights)
	for _, name := range names {
		weight, ok := All[Kind(name)]
		if !ok {
			return nil, fmt.Errorf("no fault %q; there are %v", name, order)
		}
		weights[Kind(name)] = weight
	}
	return weights, nil
}

// Without is All without those that are named.
func Without(names []string) (Weights, error) {
	weights := maps.Clone(All)
	for _, name := range names {
		if _, ok := All[Kind(name)]; !ok {
			return nil, fmt.Errorf("no fault %q; there are %v", name, order)
		}
		delete(weights, Kind(name))
	}
	if len(weights) == 0 {
		return nil, errors.New("no fault is left")
	}
	return weights, nil
}

// order makes the choice the same in each run.
var order = []Kind{
	Pause, Usurp, PauseCut, Kill, Terminate, Shoot, Cancel, Numb, Cut, Reset,
	HalfOpen, Mute, Deaf, Refuse, Hang, Slow, Fast, Immediate, Switch, FailOver, Forget, LockTable, Hog,
	RedisKill, RedisStop, RedisPause, RedisFlush, RedisDel, RedisCut, RedisDeaf, RedisLate,
}

// Action is one fault.
type Action struct {
	Kind   Kind
	Worker int    // whom it hits if nobody holds Key
	Key    string // whose holder it hits
	For    time.Duration
	// Lag is how long everything takes on all links meanwhile, in each direction.
	Lag  time.Duration
	Draw uint64 // for a choice that can only be made when it comes to it
}

// longestLag is far from what counts as silence.
const longestLag = 10 * time.Millisecond

// Plan makes as many actions as there are rounds. It is the same for the same
// arguments.
func Plan(seed uint64, segment, rounds, workers int, keys []string, weights Weights) []Action {
	r := rand.New(rand.NewPCG(seed, uint64(segment)))
	sum := 0
	for _, kind := range order {
		sum += weights[kind]
	}
	actions := make([]Action, rounds)
	for i := range actions {
		actions[i] = Action{
			Kind: choose(weights, r.IntN(sum)), Worker: 1 + r.IntN(workers), Key: keys[r.IntN(len(keys))],
			For: 50*time.Millisecond + time.Duration(r.Int64N(int64(250*time.Millisecond))), Draw: r.Uint64(),
		}
		if r.IntN(4) == 0 {
			actions[i].Lag = time.Duration(r.Int64N(int64(longestLag)))
		}
	}
	return actions
}

func choose(weights Weights, n int) Kind {
	for _, kind := range order {
		if n -= weights[kind]; n < 0 {
			return kind
		}
	}
	panic("BUG: nemesis: the weights changed")
}
