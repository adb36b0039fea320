package advisory_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// counting counts in n how often a pool connects.
func counting(n *atomic.Int64) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			n.Add(1)
			return nil
		}
	}
}

func TestLead_survivesAServerThatIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	var connects atomic.Int64
	_, locker := b.another(t, nil, through(proxy), counting(&connects))
	c := campaign(t, locker, advisory.ID(7))
	term := c.leads(t)

	proxy.RefuseNew(true)
	proxy.Cut()
	<-term.ctx.Done()
	require.ErrorIs(t, context.Cause(term.ctx), advisory.ErrLost)
	before := connects.Load()
	term.result <- term.ctx.Err()
	b.eventually(t, "it has campaigned in vain", func() bool { return connects.Load() >= before+3 })
	b.noLockLeft(t)

	proxy.RefuseNew(false)
	term = c.leads(t)
	require.True(t, b.isHeldBy(t, 7, term.lock.BackendPID()))
	term.result <- nil
	require.NoError(t, c.end(t))
	b.leakCheck(t)
}

func TestLead_startsBeforeTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	proxy.RefuseNew(true)
	var connects atomic.Int64
	_, locker := b.another(t, nil, through(proxy), counting(&connects))
	c := campaign(t, locker, advisory.ID(7))
	b.eventually(t, "it has campaigned in vain", func() bool { return connects.Load() >= 2 })
	proxy.RefuseNew(false)
	c.leads(t).result <- nil
	require.NoError(t, c.end(t))
}

func TestLead_endsWithItsContextWhilePausing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	proxy.RefuseNew(true)
	var connects atomic.Int64
	_, locker := b.another(t, nil, through(proxy), counting(&connects))
	c := campaign(t, locker, advisory.ID(7))
	b.eventually(t, "it has failed often enough to pause for 1.6 s", func() bool {
		return connects.Load() >= 6 && advisory.Waiting(locker, advisory.ID(7)) == 0
	})
	mine := errors.New("mine")
	elapsed := timed(t)
	c.stop(mine)
	err := c.end(t)
	require.Less(t, elapsed(), time.Second)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, mine)
	require.ErrorContains(t, err, "get a connection", "what it paused for")
	b.leakCheck(t)
}

func TestLead_returnsAtOnceWhatDoesNotPass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	never := func(context.Context, *advisory.Lock) error {
		t.Error("fn is called")
		return nil
	}
	_, wrongDatabase := b.another(t, nil, func(c *pgxpool.Config) { c.ConnConfig.Database = "pgtest_none" })
	err := wrongDatabase.Lead(t.Context(), advisory.ID(7), never)
	require.ErrorContains(t, err, `database "pgtest_none" does not exist`)
	if !isPooled() { // which has a code of its own
		requireSQLState(t, err, "3D000")
	}

	_, wrongUser := b.another(t, nil, func(c *pgxpool.Config) { c.ConnConfig.User = "pgtest_none" })
	err = wrongUser.Lead(t.Context(), advisory.ID(7), never)
	require.ErrorContains(t, err, "user=pgtest_none")
	if !isPooled() {
		require.ErrorContains(t, err, "SQLSTATE 28")
	}

	require.ErrorIs(t, b.locker.Lead(t.Context(), advisory.Key{}, never), advisory.ErrInvalidKey)

	_, small := b.another(t, nil, maxConns(2))
	lock, err := small.TryLock(t.Context(), advisory.ID(8))
	require.NoError(t, err)
	require.ErrorIs(t, small.Lead(t.Context(), advisory.ID(7), never), advisory.ErrPoolExhausted)
	require.NoError(t, lock.Unlock(t.Context()))

	pool, orphan := b.another(t, nil)
	pool.Close()
	require.ErrorContains(t, orphan.Lead(t.Context(), advisory.ID(7), never), "closed pool")

	_, closed := b.another(t, nil)
	require.NoError(t, closed.Close(t.Context()))
	require.ErrorIs(t, closed.Lead(t.Context(), advisory.ID(7), never), advisory.ErrClosed)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.locker.Lead(ended, advisory.ID(7), never), context.Canceled)
	b.leakCheck(t)
}

// A pool that was large enough for the first term is not too small for good.
func TestLead_waitsForThePoolAfterALoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, small := b.another(t, nil, maxConns(2))
	c := campaign(t, small, advisory.ID(7))
	term := c.leads(t)
	b.terminate(t, term.lock.BackendPID())
	<-term.ctx.Done()
	lock, err := small.Lock(t.Context(), advisory.ID(8))
	require.NoError(t, err)
	term.result <- nil
	select {
	case err := <-c.done:
		t.Fatalf("Lead has returned: %v", err)
	case <-c.terms:
		t.Fatal("leads without a connection")
	case <-time.After(300 * time.Millisecond): // three times the longest first pause
	}
	require.NoError(t, lock.Unlock(t.Context()))
	c.leads(t).result <- nil
	require.NoError(t, c.end(t))
}
