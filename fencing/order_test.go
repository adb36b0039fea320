package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// contend locks a resource again and again from four pools whose default is the
// level, and returns the tokens in the order of the grants.
func contend(t *testing.T, b *bundle, try bool, level pgx.TxIsoLevel) []fencing.Token {
	t.Helper()
	const pools, each = 4, 2
	rounds := 25
	if try {
		rounds = 5 // each of which takes many tries
	}
	var tokens []fencing.Token // guarded by the lock in the database, and mu tells the race detector
	var mu sync.Mutex
	holding := func(_ context.Context, lease *fencing.Lease) error {
		mu.Lock()
		defer mu.Unlock()
		tokens = append(tokens, lease.Token())
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*limit)
	defer cancel()
	var work sync.WaitGroup
	for range pools {
		fencer := b.another(t, with("default_transaction_isolation", string(level)))
		for range each {
			// Ends with its rounds or with ctx; the test waits for it.
			work.Go(func() {
				for range rounds {
					if err := contendOnce(ctx, fencer, try, holding); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	work.Wait()
	require.Len(t, tokens, pools*each*rounds)
	return tokens
}

func contendOnce(ctx context.Context, f *fencing.Fencer, try bool, holding func(context.Context, *fencing.Lease) error) error {
	if !try {
		return f.Do(ctx, "nightly", holding)
	}
	for {
		err := f.TryDo(ctx, "nightly", holding)
		if err == nil || ctx.Err() != nil || !errors.Is(err, advisory.ErrNotAcquired) {
			return err
		}
	}
}

func TestLock_issuesTokensThatGrowInTheOrderOfTheGrants(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		for _, try := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, try=%t", level, try), func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				tokens := contend(t, b, try, level)
				for i := range tokens[1:] {
					require.Greater(t, tokens[i+1], tokens[i], "grant %d", i+1)
				}
				require.Equal(t, tokens[len(tokens)-1], b.mark(t, "nightly"))
				b.waitForNoLock(t)
			})
		}
	}
}
