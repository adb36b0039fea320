//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/gate"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/redistest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// The fences.
const (
	noFence       = "none"
	postgresFence = "postgres"
	redisFence    = "redis"
	gateFence     = "gate"
)

// bank has the servers and an account for each act. What it made it removes.
type bank struct {
	redis    *redis.Client
	redisURL string
	pool     *pgxpool.Pool
	prefix   string
	service  *httptest.Server
	behind   atomic.Int64 // the balance behind the gate
	cleanup  []func()
}

func newBank(ctx context.Context) (b *bank, err error) {
	b = &bank{prefix: "redislock-" + strings.ToLower(rand.Text()) + ":"}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if err := b.openRedis(ctx); err != nil {
		return b, err
	}
	if err := b.openPostgres(ctx); err != nil {
		return b, err
	}
	return b, b.openService()
}

func (b *bank) openRedis(ctx context.Context) error {
	url, stop, err := redistest.Find(ctx)
	if err != nil {
		return err
	}
	b.cleanup = append(b.cleanup, func() { _ = stop() })
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	b.redis, b.redisURL = redis.NewClient(options), url
	b.cleanup = append(b.cleanup, func() {
		keys, _ := b.redis.Keys(context.Background(), b.prefix+"*").Result() // none if it is gone
		if len(keys) > 0 {
			_ = b.redis.Del(context.Background(), keys...).Err()
		}
		_ = b.redis.Close()
	})
	return nil
}

func (b *bank) openPostgres(ctx context.Context) error {
	server, err := pgtest.Start(ctx, io.Discard)
	if err != nil {
		return err
	}
	b.cleanup = append(b.cleanup, func() { _ = server.Close() })
	admin, err := pgxpool.New(ctx, server.DSN())
	if err != nil {
		return err
	}
	database := "redislock_" + strings.ToLower(rand.Text())
	b.cleanup = append(b.cleanup, func() {
		_, _ = admin.Exec(context.Background(), "DROP DATABASE IF EXISTS "+database+" WITH (FORCE)")
		admin.Close()
	})
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+database); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(server.DSN())
	if err != nil {
		return err
	}
	config.ConnConfig.Database = database
	if b.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	b.cleanup = append(b.cleanup, b.pool.Close)
	if err := migrations.Up(ctx, b.pool); err != nil {
		return err
	}
	if _, err := b.pool.Exec(ctx, "CREATE TABLE account AS SELECT 0 AS balance"); err != nil {
		return err
	}
	return fencing.Guard(ctx, b.pool, "account", resource)
}

// openService starts the service behind a gate.
func (b *bank) openService() error {
	folder, err := os.MkdirTemp("", "redislock-")
	if err != nil {
		return err
	}
	b.cleanup = append(b.cleanup, func() { _ = os.RemoveAll(folder) })
	marks, err := gate.OpenFile(filepath.Join(folder, "marks"))
	if err != nil {
		return err
	}
	put := gate.New(marks).Handler(func(*http.Request) string { return resource }, http.HandlerFunc(b.put))
	mux := http.NewServeMux()
	mux.Handle("PUT /", put)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, b.behind.Load()) })
	b.service = httptest.NewServer(mux)
	b.cleanup = append(b.cleanup, b.service.Close)
	return nil
}

func (b *bank) put(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	balance, parseErr := strconv.ParseInt(string(text), 10, 64)
	if err := errors.Join(err, parseErr); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	b.behind.Store(balance)
	_, _ = fmt.Fprint(w, balance) // the client may be gone
}

func (b *bank) settings(name, fence string, amount int) settings {
	s := settings{Name: name, Fence: fence, Amount: amount, Redis: b.redisURL, Gate: b.service.URL, Prefix: b.prefix}
	s.Postgres = dsn(b.pool)
	return s
}

// balance is that of the account of one act.
func (b *bank) balance(ctx context.Context, fence string) (balance string, err error) {
	switch fence {
	case postgresFence:
		err = b.pool.QueryRow(ctx, "SELECT balance::text FROM account").Scan(&balance)
		return balance, err
	case gateFence:
		return strconv.FormatInt(b.behind.Load(), 10), nil
	default:
		return b.redis.Get(ctx, b.prefix+fence+":{"+resource+"}:balance").Result()
	}
}

// dsn is how the others connect to the same database.
func dsn(pool *pgxpool.Pool) string {
	c := pool.Config().ConnConfig
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	return fmt.Sprintf("host='%s' port=%d user='%s' password='%s' dbname='%s' sslmode=prefer",
		quote.Replace(c.Host), c.Port, quote.Replace(c.User), quote.Replace(c.Password), quote.Replace(c.Database))
}

func (b *bank) close() {
	for i := len(b.cleanup) - 1; i >= 0; i-- {
		b.cleanup[i]()
	}
}
