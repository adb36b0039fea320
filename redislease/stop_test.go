//go:build unix

package redislease_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/childproc"
	"github.com/pgadvisory/pgadvisory/redislease"
)

// holder is a process that locks, and says what it believes when it is asked.
func holder(ctx context.Context, in *bufio.Scanner, out io.Writer) error {
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("ADDR")})
	defer func() { _ = client.Close() }()
	l, err := redislease.New(client, &redislease.Config{TTL: time.Second, Prefix: os.Getenv("PREFIX")})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(ctx) }()
	var lease *redislease.Lease
	for in.Scan() {
		var answer any
		switch in.Text() {
		case "lock":
			if lease, err = l.Lock(ctx, "r"); err != nil {
				return err
			}
			answer = lease.Token()
		case "err":
			answer = lease.Err()
		case "unlock":
			answer = lease.Unlock(ctx)
		}
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return err
		}
	}
	return in.Err()
}

func TestLease_ofAStoppedProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	child := childproc.Start(t, "holder", "ADDR="+b.addr, "PREFIX="+b.prefix)
	require.Equal(t, "1", child.Ask("lock"))
	child.Stop()
	other := b.leaser(t, nil)
	lease := mustLock(t, other, "r") // after a TTL
	require.Equal(t, int64(2), lease.Token())
	require.NoError(t, lease.Unlock(t.Context()))
	child.Send("err") // is read first thing when it goes on
	child.Continue()
	require.Contains(t, child.Line(), "lost (expired)")
	require.Contains(t, child.Ask("unlock"), "lost (expired)")
	require.Empty(t, b.held(t, "r"), "it was not taken again")
}

func TestLease_ofAKilledProcessEndsByItsTTL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	child := childproc.Start(t, "holder", "ADDR="+b.addr, "PREFIX="+b.prefix)
	child.Ask("lock")
	waiting := inBackground(func() (*redislease.Lease, error) { return b.leaser(t, nil).Lock(t.Context(), "r") })
	child.Kill()
	require.NoError(t, receive(t, waiting).err)
}
