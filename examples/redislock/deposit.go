//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/gate"
	"github.com/pgadvisory/pgadvisory/redislease"
)

const (
	resource = "account"
	ttl      = 2 * time.Second
)

// lock is what a deposit needs of a lock. Leases of both packages have it.
type lock interface {
	Unlock(ctx context.Context) error
	Err() error
}

// account is where the balance is. Its write carries the token of the lock.
type account struct {
	read  func(context.Context) (int, error)
	write func(context.Context, int) error
}

// deposit is what Alice and Bob do. It looks at the lock only at the end, so that the
// timeline shows what a lock alone is worth; a program that looks right before it writes
// can be paused right after.
func deposit(ctx context.Context, s settings) error {
	options, err := redis.ParseURL(s.Redis)
	if err != nil {
		return err
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }() // the process ends
	leaser, err := redislease.New(client, &redislease.Config{TTL: ttl, Prefix: s.Prefix + s.Fence + ":"})
	if err != nil {
		return err
	}
	defer func() { _ = leaser.Close(ctx) }() // the process ends

	held, a, err := open(ctx, s, client, leaser)
	if err != nil {
		return err
	}
	balance, err := a.read(ctx)
	if err != nil {
		return err
	}
	fmt.Println("has read the balance:", balance)
	if in := bufio.NewScanner(os.Stdin); !in.Scan() {
		return errors.Join(io.ErrUnexpectedEOF, in.Err())
	}
	err = a.write(ctx, balance+s.Amount)
	switch {
	case errors.Is(err, fencing.ErrStale), errors.Is(err, redislease.ErrStale), errors.Is(err, gate.ErrStale):
		fmt.Println("is refused: her token is stale")
	case err != nil:
		return err
	default:
		fmt.Println("has written", balance+s.Amount)
	}
	if err := held.Unlock(ctx); errors.Is(err, redislease.ErrLost) {
		fmt.Println("has lost the lock, and learns it now")
	} else if err != nil {
		return err
	} else {
		fmt.Println("has unlocked")
	}
	return nil
}

// open locks the account, and returns it.
func open(ctx context.Context, s settings, client *redis.Client, leaser *redislease.Leaser) (lock, account, error) {
	key := s.Prefix + s.Fence + ":{" + resource + "}:balance"
	read := func(ctx context.Context) (int, error) {
		balance, err := client.Get(ctx, key).Int()
		if errors.Is(err, redis.Nil) {
			return 0, nil
		}
		return balance, err
	}
	if s.Fence == postgresFence {
		return openPostgres(ctx, s, leaser)
	}
	lease, err := leaser.Lock(ctx, resource)
	if err != nil {
		return nil, account{}, err
	}
	fmt.Println("has the lock, with token", lease.Token())
	switch s.Fence {
	case redisFence:
		fence, err := redislease.NewFence(client, s.Prefix+s.Fence+":")
		return lease, account{read, func(ctx context.Context, balance int) error {
			return fence.Set(ctx, resource, lease.Token(), key, balance)
		}}, err
	case gateFence:
		return lease, account{
			func(ctx context.Context) (int, error) { return request(ctx, s.Gate, http.MethodGet, 0, 0) },
			func(ctx context.Context, balance int) error {
				_, err := request(ctx, s.Gate, http.MethodPut, lease.Token(), balance)
				return err
			},
		}, nil
	default:
		return lease, account{read, func(ctx context.Context, balance int) error { return client.Set(ctx, key, balance, 0).Err() }}, nil
	}
}

func openPostgres(ctx context.Context, s settings, leaser *redislease.Leaser) (lock, account, error) {
	pool, err := pgxpool.New(ctx, s.Postgres) // which ends with the process
	if err != nil {
		return nil, account{}, err
	}
	fencer, err := fencing.NewOver(leaser, pool, nil)
	if err != nil {
		return nil, account{}, err
	}
	lease, err := fencer.Lock(ctx, resource)
	if err != nil {
		return nil, account{}, err
	}
	fmt.Println("has the lock, with token", lease.Token())
	return lease, account{
		func(ctx context.Context) (balance int, err error) {
			err = pool.QueryRow(ctx, "SELECT balance FROM account").Scan(&balance)
			return balance, err
		},
		func(ctx context.Context, balance int) error {
			return lease.InTx(ctx, pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "UPDATE account SET balance = $1", balance)
				return err
			})
		},
	}, nil
}

// request asks the service that has the balance behind a gate.
func request(ctx context.Context, url, method string, token int64, balance int) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(strconv.Itoa(balance)))
	if err != nil {
		return 0, err
	}
	if token > 0 {
		r.Header.Set(gate.Header, strconv.FormatInt(token, 10))
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return 0, err
	case answer.StatusCode == http.StatusConflict:
		return 0, fmt.Errorf("%w: %s", gate.ErrStale, strings.TrimSpace(string(text)))
	case answer.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("%s: %s", answer.Status, text)
	}
	return strconv.Atoi(string(text))
}
