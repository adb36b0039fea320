//go:build unix

package arena

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/internal/redistest"
)

// Redis is the server of the locks that are not sessions'. It keeps nothing on disk.
// Its methods are for one goroutine.
type Redis struct{ *redistest.Server }

// openRedis starts a server.
func openRedis(ctx context.Context) (*Redis, error) {
	s, err := redistest.Launch(ctx)
	if err != nil {
		return nil, err
	}
	return &Redis{s}, nil
}

// Do sends one command.
func (r *Redis) Do(ctx context.Context, args ...any) error {
	client := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer func() { _ = client.Close() }() // the command has been answered
	return client.Do(ctx, args...).Err()
}

// Lose removes the lock of a key, as other software does that does not look at the owner, and
// wakes who waits for it.
func (r *Redis) Lose(ctx context.Context, key string) error {
	lock := "lease:{" + key + "}"
	if err := r.Do(ctx, "DEL", lock, "naive:"+key); err != nil {
		return err
	}
	return r.Do(ctx, "PUBLISH", lock, "")
}
