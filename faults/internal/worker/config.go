//go:build unix

package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/childproc"
)

// Role is the name of the role for [childproc.Main].
const Role = "worker"

// Roles are what the kit's binary can be started as.
var Roles = map[string]childproc.Role{Role: run}

// configVar holds the Config of a worker's process.
const configVar = "PGADVISORY_FAULTS_WORKER"

// The settings of the library in the workers. They are short, so that a fault and
// what follows from it pass quickly.
const (
	Heartbeat        = 150 * time.Millisecond
	HeartbeatTimeout = 350 * time.Millisecond
	vanishTimeout    = 3 * time.Second
	UnlockTimeout    = 500 * time.Millisecond
	maxIdle          = 2 * time.Second

	poolSize  = 4
	holders   = 2           // goroutines that lock
	callLimit = time.Second // for a transaction
	// dialLimit is for a new connection. A server that has just started, on a busy
	// machine, takes its time, and whoever gives up only adds to its work.
	dialLimit = 3 * time.Second
)

// A Flaw is what a worker does wrong on purpose, so that it can be seen that the
// checker finds it.
type Flaw string

// The flaws.
const (
	NoFlaw Flaw = ""
	// EarlyToken draws a token when it gets a connection and not after the
	// grant. It needs the server's part of the flaw too.
	EarlyToken Flaw = "early-token"
	// CarelessUnlock does not look at the result of the unlock, which it asks of
	// any connection, and gives that which locked back to the pool.
	CarelessUnlock Flaw = "careless-unlock"
	// NoHeartbeat asks a held session for a sign of life once an hour.
	NoHeartbeat Flaw = "no-heartbeat"
	// NoSecondLook does not ask Redis again, once it has a token, whether it has the lock.
	NoSecondLook Flaw = "no-second-look"
	// LateTrust trusts a lock in Redis for a time that begins with the answer and not
	// with the request.
	LateTrust Flaw = "late-trust"
	// CarelessDel deletes a lock in Redis whosever it is.
	CarelessDel Flaw = "careless-del"
)

// Config is one process.
type Config struct {
	DSN     string
	Redis   string // its address
	Worker  int
	Life    int
	Seed    uint64
	Segment int
	Keys    []string // that sessions of PostgreSQL lock
	Leased  []string // that are locked in Redis
	Flaw    Flaw
	Habit   Habit
}

// A Habit makes a certain moment in a transaction the one at which a fault is
// likely to come.
type Habit string

// The habits.
const (
	NoHabit Habit = ""
	// SlowToWrite takes its time between the look at the register, with which the
	// transaction gets its snapshot, and the write, which is to the journal only.
	// It does not use read committed.
	SlowToWrite Habit = "slow-to-write"
	// SlowToCommit takes its time between the write and the commit, and uses read
	// committed.
	SlowToCommit Habit = "slow-to-commit"
	// Persistent goes on writing for a while after each loss, also when that
	// fails.
	Persistent Habit = "persistent"
	// LostBeforeDraw has Redis lose some locks between their grant and the draw of a token,
	// and takes its time for that.
	LostBeforeDraw Habit = "lost-before-draw"
	// Lingering keeps the lock when its work is done, for a second or until it is lost.
	Lingering Habit = "lingering"
)

// Env is the environment of the process.
func (c Config) Env() (string, error) {
	text, err := json.Marshal(c)
	return configVar + "=" + string(text), err
}

func configFromEnv() (c Config, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(configVar)), &c); err != nil {
		return Config{}, fmt.Errorf("%s: %w", configVar, err)
	}
	return c, nil
}

// Application is the application_name of all workers' sessions.
const Application = "faults"

func (c Config) pool() (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	config.ConnConfig.ConnectTimeout = dialLimit
	config.ConnConfig.RuntimeParams["application_name"] = Application
	if c.Flaw == EarlyToken {
		config.PrepareConn = drawToken
	}
	return config, nil
}

func (c Config) newFencer(pool *pgxpool.Pool) (*advisory.Locker, *fencing.Fencer, error) {
	heartbeat, vanish := Heartbeat, vanishTimeout
	if c.Flaw == NoHeartbeat {
		heartbeat, vanish = time.Hour, 2*time.Hour
	}
	locker, err := advisory.New(pool, &advisory.Config{
		Heartbeat: heartbeat, HeartbeatTimeout: HeartbeatTimeout,
		VanishTimeout: vanish, UnlockTimeout: UnlockTimeout,
	})
	if err != nil {
		return nil, nil, err
	}
	fencer, err := fencing.New(locker, &fencing.Config{MaxIdle: maxIdle})
	return locker, fencer, err
}
