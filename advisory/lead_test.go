package advisory_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// candidate is a Lead under way.
type candidate struct {
	terms chan *term // one for each call of fn
	stop  context.CancelCauseFunc
	done  chan error // takes what Lead returns
}

// term is a call of fn, which returns what the test sends to result.
type term struct {
	ctx    context.Context //nolint:containedctx // is what is tested
	lock   *advisory.Lock
	result chan error
}

func campaign(t *testing.T, locker *advisory.Locker, key advisory.Key) *candidate {
	t.Helper()
	c := &candidate{terms: make(chan *term), done: make(chan error, 1)}
	ctx, stop := context.WithCancelCause(context.Background())
	c.stop = stop
	t.Cleanup(func() { stop(nil) })
	go func() {
		c.done <- locker.Lead(ctx, key, func(ctx context.Context, lock *advisory.Lock) error {
			term := &term{ctx: ctx, lock: lock, result: make(chan error)}
			select {
			case c.terms <- term:
			case <-ctx.Done():
				return ctx.Err()
			}
			return <-term.result
		})
	}()
	return c
}

// leads waits for the next term.
func (c *candidate) leads(t *testing.T) *term {
	t.Helper()
	select {
	case term := <-c.terms:
		return term
	case err := <-c.done:
		t.Fatalf("Lead has returned: %v", err)
	case <-time.After(patience):
		t.Fatal("does not lead")
	}
	return nil
}

// end waits for Lead to return, which must take no longer than a test's patience.
func (c *candidate) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-c.done:
		return err
	case <-time.After(patience):
		t.Fatal("Lead does not return")
		return nil
	}
}

func (c *candidate) isLeading() bool {
	select {
	case <-c.terms:
		return true
	default:
		return false
	}
}

func TestLead_oneLeadsAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, other := b.another(t, nil)
	first := campaign(t, b.locker, advisory.ID(7))
	term := first.leads(t)
	require.True(t, b.isHeldBy(t, 7, term.lock.BackendPID()))
	second := campaign(t, other, advisory.ID(7))
	b.eventually(t, "the other campaigns", func() bool { return b.waiting(t) == 1 })
	require.False(t, second.isLeading())
	require.NoError(t, term.ctx.Err())

	term.result <- nil
	require.NoError(t, first.end(t), "done leading")
	term = second.leads(t)
	require.True(t, b.isHeldBy(t, 7, term.lock.BackendPID()))
	mine := errors.New("mine")
	term.result <- mine
	require.Equal(t, mine, second.end(t))
	b.leakCheck(t)
}

func TestLead_campaignsAgainAfterALoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, other := b.another(t, nil)
	first := campaign(t, b.locker, advisory.ID(7))
	lost := first.leads(t)
	second := campaign(t, other, advisory.ID(7))
	b.eventually(t, "the other campaigns", func() bool { return b.waiting(t) == 1 })

	b.terminate(t, lost.lock.BackendPID())
	<-lost.ctx.Done()
	require.ErrorIs(t, context.Cause(lost.ctx), advisory.ErrLost)
	next := second.leads(t)
	require.True(t, b.isHeldBy(t, 7, next.lock.BackendPID()))
	require.Zero(t, b.waiting(t), "the first does not campaign before its fn has returned")

	lost.result <- errors.New("whatever the loss has led to")
	b.eventually(t, "the first campaigns again", func() bool { return b.waiting(t) == 1 })
	b.terminate(t, next.lock.BackendPID())
	again := first.leads(t)
	<-next.ctx.Done()
	next.result <- nil // said too late: the term was over
	b.eventually(t, "the second campaigns again", func() bool { return b.waiting(t) == 1 })
	again.result <- nil
	require.NoError(t, first.end(t))
	second.leads(t).result <- nil
	require.NoError(t, second.end(t))
	b.leakCheck(t)
}

// An fn that uses the same server may hear of the end before the lock does.
func TestLead_campaignsAgainWhenALossIsFoundOutAtTheUnlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := campaign(t, b.locker, advisory.ID(7))
	term := c.leads(t)
	require.NoError(t, advisory.ExecOnSession(term.lock, "SELECT pg_advisory_unlock_all()"))
	term.result <- errors.New("whatever the loss has led to")
	term = c.leads(t)
	require.NoError(t, advisory.ExecOnSession(term.lock, "SELECT pg_advisory_unlock_all()"))
	term.result <- nil
	require.ErrorIs(t, c.end(t), advisory.ErrLost, "done, but not exclusively until then")
	b.leakCheck(t)
}

func TestLead_endsWithItsContextWhileLeading(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine, failed := errors.New("mine"), errors.New("failed")
	for _, result := range []error{nil, context.Canceled, failed} {
		c := campaign(t, b.locker, advisory.ID(7))
		term := c.leads(t)
		c.stop(mine)
		<-term.ctx.Done()
		require.ErrorIs(t, context.Cause(term.ctx), mine)
		require.Equal(t, 1, b.granted(t), "held until fn has returned")
		term.result <- result
		err := c.end(t)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, mine)
		require.Equal(t, errors.Is(result, failed), errors.Is(err, failed))
		require.Zero(t, b.granted(t))
	}
	b.leakCheck(t)
}

func TestLead_endsWithItsContextWhileCampaigning(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	c := campaign(t, b.locker, advisory.ID(7))
	b.eventually(t, "it campaigns", func() bool { return b.waiting(t) == 1 })
	mine := errors.New("mine")
	c.stop(mine)
	err := c.end(t)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, mine)
	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	b.leakCheck(t)
}

func TestLead_unlocksWhateverFnDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.PanicsWithValue(t, "mine", func() {
		_ = b.locker.Lead(t.Context(), advisory.ID(7), func(context.Context, *advisory.Lock) error { panic("mine") })
	})
	require.Zero(t, b.granted(t))

	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = b.locker.Lead(context.Background(), advisory.ID(7), func(context.Context, *advisory.Lock) error {
			runtime.Goexit()
			return nil
		})
	}()
	<-exited
	b.noLockLeft(t)
	require.NoError(t, b.locker.Lead(t.Context(), advisory.ID(7), func(ctx context.Context, lock *advisory.Lock) error {
		return lock.Unlock(ctx)
	}))
	b.leakCheck(t)
}

func TestLead_endsWhenTheLockerIsClosed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	leader, other := campaign(t, b.locker, advisory.ID(7)), campaign(t, b.locker, advisory.ID(8))
	term := leader.leads(t)
	further := other.leads(t)
	waiter := campaign(t, b.locker, advisory.ID(7))
	b.eventually(t, "it campaigns", func() bool { return advisory.Waiting(b.locker, advisory.ID(7)) == 1 })
	require.NoError(t, b.locker.Close(t.Context()))
	<-term.ctx.Done()
	require.ErrorIs(t, waiter.end(t), advisory.ErrClosed)
	term.result <- nil
	require.ErrorIs(t, leader.end(t), advisory.ErrClosed)
	further.result <- errors.New("mine")
	require.ErrorIs(t, other.end(t), advisory.ErrClosed)
	b.noLockLeft(t)
}
