//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// runLimit bounds all but the start of the servers.
const runLimit = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	if s, ok := settingsFromEnv(); ok {
		err = deposit(ctx, s)
	} else {
		err = run(ctx, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "redislock:", err)
		os.Exit(1)
	}
}

// An act is the story once, with one fence or none.
type act struct {
	fence string
	title string
	want  string // the balance at the end
}

var acts = []act{
	{noFence, "without a fence", "100"}, // Bob's 10 are lost
	{postgresFence, "with PostgreSQL's fence over the lock in Redis (fencing.NewOver)", "10"},
	{redisFence, "with a fence in Redis (redislease.Fence)", "10"},
	{gateFence, "with a gate before a service (gate.Handler)", "10"},
}

// run plays all acts and checks each balance.
func run(ctx context.Context, out io.Writer) error {
	b, err := newBank(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not finished within %v", runLimit))
	defer cancel()
	for i, a := range acts {
		if _, err := fmt.Fprintf(out, "%d. %s\n", i+1, a.title); err != nil {
			return err
		}
		if err := play(ctx, out, b, a); err != nil {
			return fmt.Errorf("%s: %w", a.title, err)
		}
		balance, err := b.balance(ctx, a.fence)
		if err != nil {
			return err
		}
		if balance != a.want {
			return fmt.Errorf("%s: the balance is %s, and not %s", a.title, balance, a.want)
		}
		verdict := "as Bob left it"
		if a.fence == noFence {
			verdict = "and Bob's 10 are lost"
		}
		if _, err := fmt.Fprintf(out, "   the balance is %s, %s\n", balance, verdict); err != nil {
			return err
		}
	}
	return nil
}

// play is the timeline that everybody knows.
func play(ctx context.Context, out io.Writer, b *bank, a act) error {
	alice, err := start(ctx, out, b.settings("Alice", a.fence, 100))
	if err != nil {
		return err
	}
	defer alice.kill()
	if err := alice.wait("has read the balance: 0"); err != nil {
		return err
	}
	if err := alice.pause(); err != nil {
		return err
	}
	bob, err := start(ctx, out, b.settings("Bob", a.fence, 10))
	if err != nil {
		return err
	}
	defer bob.kill()
	if err := bob.goOn(); err != nil {
		return err
	}
	if err := bob.wait("has written 10"); err != nil {
		return err
	}
	if err := bob.wait("has unlocked"); err != nil {
		return err
	}
	if err := alice.goOn(); err != nil {
		return err
	}
	written := "has written 100"
	if a.fence != noFence {
		written = "is refused: her token is stale"
	}
	if err := alice.wait(written); err != nil {
		return err
	}
	return alice.wait("has lost the lock")
}
