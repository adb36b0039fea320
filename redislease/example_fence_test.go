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

// Writes to Redis that a later holder's token keeps out.
func ExampleFence() {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	client := redis.NewClient(options)
	defer client.Close()
	ctx := context.Background()

	fence, err := redislease.NewFence(client, "example:")
	if err != nil {
		fmt.Println(err)
		return
	}
	const key = "example:{report}:text"
	defer client.Del(ctx, key, "example:{report}:mark")
	fmt.Println(fence.Set(ctx, "report", 8, key, "by the holder with token 8"))
	err = fence.Set(ctx, "report", 7, key, "by one that was paused")
	fmt.Println(errors.Is(err, redislease.ErrStale))
	fmt.Println(client.Get(ctx, key).Val())
	// Output:
	// <nil>
	// true
	// by the holder with token 8
}
