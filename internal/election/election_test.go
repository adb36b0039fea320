package election_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/election"
	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

var (
	errWork    = errors.New("work failed")
	errPassing = errors.New("away for a while")
	errForGood = errors.New("refused for good")
)

// hold is a lock that a test loses.
type hold struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	unlocked error // what Unlock returns
	unlocks  int
}

func newHold() *hold {
	h := new(hold)
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h
}

func (h *hold) lose() { h.cancel(fmt.Errorf("gone: %w", lockerr.ErrLost)) }

func (h *hold) Err() error { return context.Cause(h.ctx) }

func (h *hold) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

func (h *hold) Unlock(context.Context) error {
	h.unlocks++
	if err := h.Err(); err != nil && h.unlocks == 1 {
		h.unlocked = err
	}
	h.cancel(lockerr.ErrUnlocked)
	return h.unlocked
}

// candidate gives what it is told to, one after the other, and a new hold then.
type candidate struct {
	errs  []error
	holds []*hold
}

func (c *candidate) lock(ctx context.Context) (*hold, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(c.errs) > 0 {
		err := c.errs[0]
		c.errs = c.errs[1:]
		return nil, err
	}
	h := newHold()
	c.holds = append(c.holds, h)
	return h, nil
}

func (c *candidate) campaign(closing <-chan struct{}) *election.Campaign[*hold] {
	return &election.Campaign[*hold]{
		Lock:      c.lock,
		IsPassing: func(err error, _ bool) bool { return errors.Is(err, errPassing) },
		Closing:   closing,
		Ended:     func(ctx context.Context) error { return fmt.Errorf("campaign: %w", lockerr.Ended(ctx)) },
	}
}

func TestRun_returnsWhatATermReturnedThatWasHeld(t *testing.T) {
	t.Parallel()
	for _, want := range []error{nil, errWork} {
		c := new(candidate)
		require.Equal(t, want, c.campaign(nil).Run(t.Context(), func(context.Context, *hold) error { return want }))
		require.Len(t, c.holds, 1)
		require.ErrorIs(t, c.holds[0].Err(), lockerr.ErrUnlocked)
	}
}

func TestRun_campaignsAgainAfterALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, start := new(candidate), time.Now()
		err := c.campaign(nil).Run(t.Context(), func(ctx context.Context, h *hold) error {
			if len(c.holds) == 3 {
				return nil
			}
			h.lose()
			<-ctx.Done()
			return errWork // is dropped
		})
		require.NoError(t, err)
		require.Len(t, c.holds, 3)
		for _, h := range c.holds {
			require.Positive(t, h.unlocks)
		}
		took := time.Since(start)
		require.GreaterOrEqual(t, took, 150*time.Millisecond, "50 and 100 ms at least")
		require.LessOrEqual(t, took, 300*time.Millisecond, "100 and 200 ms at most")
	})
}

// fn has failed before its lock was lost, which only the unlock found out.
func TestRun_campaignsAgainWhereTheUnlockFindsTheLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := new(candidate)
		err := c.campaign(nil).Run(t.Context(), func(_ context.Context, h *hold) error {
			if len(c.holds) == 2 {
				return nil
			}
			h.unlocked = lockerr.ErrLost
			return errWork
		})
		require.NoError(t, err)
		require.Len(t, c.holds, 2)
	})
}

// Work that is done is not done again, though the lock was lost then.
func TestRun_endsWithWorkThatIsDone(t *testing.T) {
	t.Parallel()
	c := new(candidate)
	err := c.campaign(nil).Run(t.Context(), func(_ context.Context, h *hold) error {
		h.unlocked = lockerr.ErrLost
		return nil
	})
	require.ErrorIs(t, err, lockerr.ErrLost)
	require.Len(t, c.holds, 1)
}

func TestRun_triesAgainWhatMayPassAndNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &candidate{errs: []error{errPassing, errPassing, errPassing}}
		require.NoError(t, c.campaign(nil).Run(t.Context(), func(context.Context, *hold) error { return nil }))

		c = &candidate{errs: []error{errPassing, errForGood, errPassing}}
		require.Equal(t, errForGood, c.campaign(nil).Run(t.Context(), nil))
		require.Equal(t, []error{errPassing}, c.errs)
	})
}

func TestRun_endsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		passing := make([]error, 100)
		for i := range passing {
			passing[i] = errPassing
		}
		c := &candidate{errs: passing}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errWork)
		defer cancel()
		err := c.campaign(nil).Run(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errWork, "the cause")
		require.ErrorIs(t, err, errPassing, "what it was about")

		c = new(candidate)
		ctx, cancel = context.WithCancel(t.Context())
		err = c.campaign(nil).Run(ctx, func(ctx context.Context, _ *hold) error {
			cancel()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, c.holds[0].Err(), lockerr.ErrUnlocked)
	})
}

func TestRun_pausesNoLongerThanUntilClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closing, start := make(chan struct{}), time.Now()
		close(closing)
		c := &candidate{errs: []error{errPassing, errPassing, errForGood}}
		require.Equal(t, errForGood, c.campaign(closing).Run(t.Context(), nil))
		require.Zero(t, time.Since(start))
	})
}

func TestRun_unlocksWhatPanics(t *testing.T) {
	t.Parallel()
	c := new(candidate)
	require.Panics(t, func() {
		_ = c.campaign(nil).Run(t.Context(), func(context.Context, *hold) error { panic("work panicked") })
	})
	require.ErrorIs(t, c.holds[0].Err(), lockerr.ErrUnlocked)
}

func TestBackoff_doublesUpToALimit(t *testing.T) {
	t.Parallel()
	for failures, longest := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 7: 6400 * time.Millisecond, 8: 10 * time.Second, 1 << 40: 10 * time.Second,
	} {
		require.Equal(t, longest, election.Backoff(failures, 0))
		require.Equal(t, longest/2, election.Backoff(failures, 1))
	}
}

func TestPassesSQLState(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]bool{
		"": true, "0": true, "57P01": true, "08006": true, "40001": true, "53300": true, "55P03": true,
		"28P01": false, "28000": false, "42501": false, "3D000": false, "3F000": false, "0A000": false,
	} {
		require.Equal(t, want, election.PassesSQLState(code), code)
	}
}
