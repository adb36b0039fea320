package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// service is another service's lock, which can be lost there without a word.
type service struct {
	mu     sync.Mutex
	holder *serviceHold
}

func (s *service) TryLock(_ context.Context, resource string) (*serviceHold, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != nil {
		return nil, fmt.Errorf("lock %q: %w", resource, advisory.ErrNotAcquired)
	}
	s.holder = &serviceHold{service: s, done: make(chan struct{})}
	return s.holder, nil
}

func (s *service) Lock(ctx context.Context, resource string) (*serviceHold, error) {
	for {
		if h, err := s.TryLock(ctx, resource); err == nil || ctx.Err() != nil {
			return h, errors.Join(err, ctx.Err())
		}
	}
}

// lose has the service forget who holds.
func (s *service) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder = nil
}

func (s *service) isHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder != nil
}

type serviceHold struct {
	service *service
	done    chan struct{}
	once    sync.Once
	check   func() // before the service is asked
}

func (h *serviceHold) Check(context.Context) error {
	if h.check != nil {
		h.check()
	}
	h.service.mu.Lock()
	defer h.service.mu.Unlock()
	if h.service.holder != h {
		return fmt.Errorf("check: %w", advisory.ErrLost)
	}
	return nil
}

func (h *serviceHold) Unlock(ctx context.Context) error {
	err := h.Check(ctx)
	h.once.Do(func() { close(h.done) })
	if err == nil {
		h.service.lose()
	}
	return err
}

func (h *serviceHold) Done() <-chan struct{} { return h.done }

func (h *serviceHold) Err() error {
	select {
	case <-h.done:
		return advisory.ErrUnlocked
	default:
		return nil
	}
}

func (h *serviceHold) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

// hooked calls a function before each query.
type hooked struct {
	fencing.Querier
	before func(sql string)
}

func (h hooked) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	h.before(sql)
	return h.Querier.Query(ctx, sql, args...)
}

// checked has a hook before each hold's check.
type checked struct {
	*service
	before func()
}

func (c checked) TryLock(ctx context.Context, resource string) (*serviceHold, error) {
	h, err := c.service.TryLock(ctx, resource)
	if h != nil {
		h.check = c.before
	}
	return h, err
}

func (c checked) Lock(ctx context.Context, resource string) (*serviceHold, error) {
	return c.TryLock(ctx, resource)
}

func newOver(t *testing.T, mutex fencing.Mutex[*serviceHold], db fencing.Querier) *fencing.Fencer {
	t.Helper()
	f, err := fencing.NewOver(mutex, db, nil)
	require.NoError(t, err)
	return f
}

// Wherever a holder is paused while the service gives its lock to another, the other
// can write, and the first one fails.
func TestNewOver_whomTheServiceHasCanWrite(t *testing.T) {
	t.Parallel()
	const beforeMark, beforeDraw, beforeCheck = "read the mark", "draw", "check"
	for _, at := range []string{beforeMark, beforeDraw, beforeCheck, "check after a refused draw"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.guarded(t, "exports", "nightly")
			s := new(service)
			other := newOver(t, s, b.pool)
			var current *fencing.Lease
			var once sync.Once
			draws, checks := 0, 0
			takeOver := func() {
				once.Do(func() {
					s.lose()
					current = b.lock(t, other, "nightly")
				})
			}
			db := hooked{b.pool, func(sql string) {
				isDraw := strings.Contains(sql, "issue_after")
				if isDraw {
					draws++
				}
				switch {
				case at == beforeMark && !isDraw, at == beforeDraw && isDraw:
					takeOver()
				case strings.HasPrefix(at, "check after") && isDraw && draws == 1:
					b.exec(t, `SELECT fencing.issue('nightly')`) // so that this one is refused
				}
			}}
			mutex := checked{s, func() {
				if checks++; at == beforeCheck || strings.HasPrefix(at, "check after") {
					takeOver()
				}
			}}
			lease, err := newOver(t, mutex, db).Lock(t.Context(), "nightly")
			require.Error(t, err)
			require.Nil(t, lease)
			if at == beforeMark {
				require.ErrorIs(t, err, advisory.ErrNotAcquired, "it never had the lock")
			} else {
				require.ErrorIs(t, err, advisory.ErrLost)
				require.Positive(t, checks)
			}
			require.NotNil(t, current)
			require.NoError(t, current.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
			require.NoError(t, current.Unlock(t.Context()))
		})
	}
}

func TestNewOver_supersedesTheHolderBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	s := new(service)
	a, other := newOver(t, s, b.pool), newOver(t, s, b.pool)
	old := b.lock(t, a, "nightly")
	require.Equal(t, fencing.Token(1), old.Token())
	require.Equal(t, "nightly", old.Resource())
	require.NoError(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
	_, err := other.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	s.lose()
	current, err := other.TryLock(t.Context(), "nightly")
	require.NoError(t, err)
	require.ErrorIs(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4)), fencing.ErrStale)
	require.NoError(t, current.InTx(t.Context(), b.pool, write(t.Context(), "exports", 5)))

	require.Nil(t, current.AdvisoryLock())
	require.Zero(t, current.BackendPID())
	require.True(t, current.SafeUntil().IsZero())
	require.ErrorIs(t, current.Tx(t.Context(), pgx.TxOptions{}, func(pgx.Tx) error { panic("not reached") }), fencing.ErrNoSession)
	require.ErrorIs(t, old.Unlock(t.Context()), advisory.ErrLost)
	require.NoError(t, current.Unlock(t.Context()))
	require.ErrorIs(t, current.Err(), advisory.ErrUnlocked)
	receive(t, current.Done())
}

func TestNewOver_waitsForTheWritersOfEarlierHolders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	s := new(service)
	f := newOver(t, s, b.pool)
	old := b.lock(t, f, "nightly")
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	require.NoError(t, old.Stamp(t.Context(), tx))
	require.NoError(t, write(t.Context(), "exports", 3)(tx))
	require.NoError(t, old.Unlock(t.Context()))

	_, err = f.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.ErrorContains(t, err, fmt.Sprint(tx.Conn().PgConn().PID()))
	require.False(t, s.isHeld(), "it is given back")

	ctx, cancel := context.WithCancel(t.Context())
	waiting := lockInBackground(ctx, f, "nightly")
	b.waitFor(t, "it waits", `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`)
	cancel()
	require.ErrorIs(t, receive(t, waiting).err, context.Canceled)
	// Where ctx has ended, the caller does not wait for it.
	require.Eventually(t, func() bool { return !s.isHeld() }, time.Minute, time.Millisecond)

	waiting = lockInBackground(t.Context(), f, "nightly")
	b.waitFor(t, "it waits", `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`)
	require.NoError(t, tx.Commit(t.Context()))
	current := receive(t, waiting)
	require.NoError(t, current.err)
	require.NoError(t, current.lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4)))
}

func TestNewOver_drawsNothingBesideASession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := new(service)
	f := newOver(t, s, b.pool)
	session := b.lock(t, b.fencer, "nightly")
	_, err := f.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.False(t, s.isHeld())
	require.Equal(t, session.Token(), b.mark(t, "nightly"))
	waiting := lockInBackground(t.Context(), f, "nightly")
	require.NoError(t, session.Unlock(t.Context()))
	a := receive(t, waiting)
	require.NoError(t, a.err)
	require.Greater(t, a.lease.Token(), session.Token())
}

func TestNewOver_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := new(service)
	_, err := fencing.NewOver[*serviceHold](nil, b.pool, nil)
	require.ErrorContains(t, err, "mutex")
	_, err = fencing.NewOver(s, nil, nil)
	require.ErrorContains(t, err, "database")
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := fencing.NewOver(s, tx, nil)
		require.ErrorContains(t, err, "transaction")
		return nil
	}))
	_, err = fencing.NewOver(s, b.pool, &fencing.Config{MaxIdle: -1})
	require.ErrorContains(t, err, "MaxIdle")

	f := newOver(t, s, b.pool)
	never := func(context.Context, *fencing.Lease) error { panic("not reached") }
	for name, resource := range badResources {
		_, err := f.TryLock(t.Context(), resource)
		require.ErrorIs(t, err, advisory.ErrInvalidKey, name)
		require.ErrorIs(t, f.Lead(t.Context(), resource, never), advisory.ErrInvalidKey, name)
	}
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	_, err = f.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, fencing.ErrNotInstalled)
	require.ErrorIs(t, f.Lead(t.Context(), "nightly", never), fencing.ErrNotInstalled)
	require.False(t, s.isHeld())
}

func TestIssueAfter_drawsOnlyAboveTheMarkThatWasSeen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const issueAfter = `SELECT fencing.issue_after('nightly', $1)`
	first := one[fencing.Token](t, b.observer, issueAfter, 0)
	require.Positive(t, first)
	require.Nil(t, one[*fencing.Token](t, b.observer, issueAfter, 0), "there is one by now")
	require.Nil(t, one[*fencing.Token](t, b.observer, issueAfter, first+1))
	require.Equal(t, first, b.mark(t, "nightly"), "that drew nothing")
	require.Greater(t, one[fencing.Token](t, b.observer, issueAfter, first), first)
}
