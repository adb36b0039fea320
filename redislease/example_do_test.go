//go:build unix

package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/redislease"
)

// A lock in Redis for what is not in PostgreSQL.
func Example() {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := upload(context.Background(), client); err != nil {
		fmt.Println(err)
	}
	// Output: uploading
}

func upload(ctx context.Context, client *redis.Client) error {
	leaser, err := redislease.New(client, nil)
	if err != nil {
		return err
	}
	defer leaser.Close(context.WithoutCancel(ctx))
	err = leaser.TryDo(ctx, "nightly-upload", func(ctx context.Context, lease *redislease.Lease) error {
		return send(ctx, lease.Token()) // ctx ends if the lease is lost, before Redis lets go
	})
	if errors.Is(err, redislease.ErrNotAcquired) {
		return nil // another replica is running it
	}
	return err
}

func send(context.Context, int64) error {
	fmt.Println("uploading")
	return nil
}
