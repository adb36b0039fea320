package fencing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A history is what the callers of one server were told. A token counts from
// the moment that Lock returns it; of a Lock that returns an error, nobody knows
// whether the server drew one.
type history struct {
	mu      sync.Mutex // guards what follows
	highest map[string]fencing.Token
	told    map[string]map[fencing.Token]bool
	count   int
	faults  []string
}

// last is the highest token of the resource that anybody was told.
func (h *history) last(resource string) fencing.Token {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.highest[resource]
}

// add records a token, of a Lock that began when last was the highest.
func (h *history) add(resource string, last, token fencing.Token) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.told[resource] == nil {
		h.told[resource] = map[fencing.Token]bool{}
	}
	if token <= last || h.told[resource][token] {
		h.faults = append(h.faults, fmt.Sprintf("%s: %d, after %d", resource, token, last))
	}
	h.told[resource][token] = true
	h.highest[resource] = max(h.highest[resource], token)
	h.count++
}

func (h *history) total() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// Each round kills the backend of a client with SIGKILL, whereupon the server
// drops its shared memory, with the log that is not yet written, and recovers
// from what is on disk. The log's writer sleeps for so long that only commits
// write.
func TestCrash_noTokenIsIssuedTwice(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		// A caller that is durable by itself makes the others' tokens durable too.
		"all of them asynchronous":  {"off", "off", "off", "off", "off", "off"},
		"some of them asynchronous": {"on", "off", "on", "off", "local", "off"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const kills = 25
			db := pgtest.StartWith(t, "wal_writer_delay=10s", "checkpoint_timeout=30s")
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			h := &history{highest: map[string]fencing.Token{}, told: map[string]map[fencing.Token]bool{}}
			var workers sync.WaitGroup
			defer workers.Wait()
			defer cancel()
			for i, setting := range settings {
				fencer := newFencer(t, db.Pool(t, with("synchronous_commit", setting)), nil, nil)
				resource := fmt.Sprintf("resource%d", i%3)
				// Ends with ctx; the test waits for it.
				workers.Go(func() { draw(ctx, fencer, resource, h) })
			}

			began := time.Now()
			for range kills {
				waitForTokens(ctx, t, h, h.total()+1+rand.N(40))
				killBackend(ctx, t, db.DSN)
			}
			waitForTokens(ctx, t, h, h.total()+10)
			took := time.Since(began)
			cancel()
			workers.Wait()
			t.Logf("%d kills, %d tokens, %v", kills, h.count, took.Round(time.Millisecond))
			require.Empty(t, h.faults)
			log, err := db.Server.Log(t.Context())
			require.NoError(t, err)
			require.GreaterOrEqual(t, strings.Count(log, ") was terminated by signal 9"), kills)
			observer := db.Conn(t)
			for resource, highest := range h.highest {
				require.GreaterOrEqual(t, one[int64](t, observer, `SELECT mark FROM fencing.resource WHERE name = $1`, resource), int64(highest))
			}
		})
	}
}

// draw takes and gives back the lock until ctx ends, also while the server is
// down.
func draw(ctx context.Context, fencer *fencing.Fencer, resource string, h *history) {
	for ctx.Err() == nil {
		last := h.last(resource)
		lease, err := fencer.Lock(ctx, resource)
		if err != nil {
			waitAMoment(ctx)
			continue
		}
		h.add(resource, last, lease.Token())
		_ = lease.Unlock(ctx) // may be lost
	}
}

func waitAMoment(ctx context.Context) {
	select {
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
	}
}

func waitForTokens(ctx context.Context, t *testing.T, h *history, n int) {
	t.Helper()
	for h.total() < n {
		waitAMoment(ctx)
		require.NoError(t, ctx.Err(), "waiting for %d tokens", n)
	}
}

// killBackend kills one that takes locks, as soon as the server lets anybody in.
func killBackend(ctx context.Context, t *testing.T, dsn string) {
	t.Helper()
	for {
		err := tryKillBackend(ctx, dsn)
		if err == nil {
			return
		}
		waitAMoment(ctx)
		require.NoError(t, ctx.Err(), "no backend to kill: %v", err)
	}
}

func tryKillBackend(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var pid int
	if err := conn.QueryRow(ctx, `SELECT pid FROM pg_catalog.pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1`).Scan(&pid); err != nil {
		return err
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if err := process.Kill(); err != nil {
		return err
	}
	// The server ends this session like all others. If it doesn't, the victim was
	// ending anyway.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, _ = conn.WaitForNotification(ctx) // never comes
	return ctx.Err()
}
