package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// stressDuration is that of one stress test; STRESS_DURATION sets it.
func stressDuration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("STRESS_DURATION")
	if text == "" {
		return time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err, "STRESS_DURATION")
	return d
}

// Nothing disturbs the server here, so that a call may fail for few reasons and
// an unlock for none.
func TestStress_calm(t *testing.T) {
	t.Parallel()
	s := newStress(t)
	s.strict = true
	s.run(t, stressDuration(t))
}

// Backends are terminated, statements cancelled and Lockers closed meanwhile. A
// hold counts only if its Unlock says that there was no gap in it.
func TestStress_faults(t *testing.T) {
	t.Parallel()
	s := newStress(t)
	s.disturb = true
	s.run(t, stressDuration(t))
}

// stress is a few processes, as it were, whose goroutines take a few locks in
// all ways there are.
type stress struct {
	*bundle
	records
	strict  bool // only what the documentation expects may fail
	disturb bool
	members []*member

	ops, granted, ended atomic.Int64
}

// member is one of the processes: a pool with a Locker and a Session, each of
// which is replaced when it has been closed.
type member struct {
	*stress
	pool *pgxpool.Pool

	mu      sync.Mutex
	locker  *advisory.Locker
	session *advisory.Session
}

func newStress(t *testing.T) *stress {
	t.Helper()
	s := &stress{bundle: setup(t)}
	for _, size := range []int32{3, 6, 12} {
		m := &member{stress: s, pool: s.via.Pool(t, maxConns(size))}
		m.replaceLocker(t)
		s.members = append(s.members, m)
	}
	return s
}

func (s *stress) run(t *testing.T, duration time.Duration) {
	t.Helper()
	// On a machine that is busy it takes its time until a lock is granted.
	ctx, cancel := context.WithTimeout(t.Context(), duration+patience)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() {
		for end := time.After(duration); ctx.Err() == nil; end = time.After(10 * time.Millisecond) {
			if <-end; s.granted.Load() > 0 {
				cancel()
			}
		}
	})
	for _, m := range s.members {
		for range 8 {
			work.Go(func() {
				for ctx.Err() == nil {
					m.step(ctx, t)
				}
			})
		}
	}
	if s.disturb {
		work.Go(func() { s.makeTrouble(ctx, t) })
	}
	work.Wait()
	for _, m := range s.members {
		m.replaceSession(t, nil)
		s.eventually(t, "the Locker has nothing left", func() bool { return advisory.Leftovers(m.current()) == "" })
		s.eventually(t, "AcquiredConns is 0", func() bool { return m.pool.Stat().AcquiredConns() == 0 })
		m.checkSettings(t)
		require.NoError(t, m.current().Close(t.Context()))
	}
	s.noLockLeft(t)
	s.check(t)
	t.Logf("%d operations, %d locks granted, %d of them ended before their unlock", s.ops.Load(), s.granted.Load(), s.ended.Load())
	require.NotZero(t, s.granted.Load())
}

// checkSettings looks for a connection that came back changed.
func (m *member) checkSettings(t *testing.T) {
	t.Helper()
	for _, conn := range m.pool.AcquireAllIdle(t.Context()) {
		var name, idle string
		err := conn.QueryRow(t.Context(), "SELECT current_setting('application_name'), coalesce(current_setting('idle_session_timeout', true), '0') || "+
			"coalesce(current_setting('client_connection_check_interval', true), '0')").Scan(&name, &idle)
		if err == nil { // else it was terminated
			require.Empty(t, name)
			require.Equal(t, "00", idle)
		}
		conn.Release()
	}
}

// makeTrouble does what administrators and operators of programs do, to somebody.
func (s *stress) makeTrouble(ctx context.Context, t *testing.T) {
	t.Helper()
	victim := "SELECT %s FROM (SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() " +
		"AND backend_type = 'client backend' AND application_name LIKE 'lock%%' ORDER BY random() LIMIT 1) AS one"
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m := s.members[rand.IntN(len(s.members))]
		var err error
		switch rand.IntN(20) {
		case 0:
			m.replaceLocker(t)
		case 1, 2, 3:
			_, err = s.raw.Exec(ctx, fmt.Sprintf(victim, "pg_terminate_backend(pid)"))
		default:
			_, err = s.raw.Exec(ctx, fmt.Sprintf(victim, "pg_cancel_backend(pid)"))
		}
		if err != nil && ctx.Err() == nil {
			t.Errorf("make trouble: %v", err)
		}
	}
}

func (m *member) current() *advisory.Locker {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locker
}

// replaceLocker closes the Locker under those who use it.
func (m *member) replaceLocker(t *testing.T) {
	t.Helper()
	locker, err := advisory.New(m.pool, patient(m.usual(nil)))
	if err != nil {
		t.Errorf("new locker: %v", err)
		return
	}
	m.mu.Lock()
	old := m.locker
	m.locker = locker
	m.mu.Unlock()
	if old == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = old.Close(ctx) // its unlocks may meet the trouble
	if ctx.Err() != nil {
		t.Error("Close did not end")
	}
	m.eventually(t, "a closed Locker has nothing left", func() bool { return advisory.Leftovers(old) == "" })
}

// replaceSession closes the Session under those who use it.
func (m *member) replaceSession(t *testing.T, session *advisory.Session) {
	t.Helper()
	m.mu.Lock()
	old := m.session
	m.session = session
	m.mu.Unlock()
	if old != nil {
		if err := old.Close(context.Background()); err != nil && m.strict {
			t.Errorf("close the session: %v", err)
		}
	}
}

// currentSession opens one if there is none or a call found that it has ended.
func (m *member) currentSession(ctx context.Context, t *testing.T) (*advisory.Session, error) {
	t.Helper()
	m.mu.Lock()
	s := m.session
	m.mu.Unlock()
	if s != nil {
		return s, nil
	}
	s, err := m.current().Session(ctx)
	if err == nil {
		m.replaceSession(t, s)
	}
	return s, err
}

// stressKeys are few, so that there is a crowd for each.
var stressKeys = []advisory.Key{advisory.ID(1), advisory.ID(2), advisory.Name("three"), advisory.Pair(4, -4), advisory.ID(5)}

// step takes a lock in one of all ways, holds it and unlocks.
func (m *member) step(run context.Context, t *testing.T) {
	t.Helper()
	limit := time.Second
	if rand.IntN(2) == 0 {
		limit = time.Duration(rand.Int64N(int64(20 * time.Millisecond)))
	}
	ctx, cancel := context.WithTimeout(run, limit)
	defer cancel()
	m.ops.Add(1)
	if rand.IntN(40) == 0 {
		m.replaceSession(t, nil)
	}
	lock, shared, err := m.acquire(ctx, t)
	if err != nil {
		m.checkRefusal(t, err)
		return
	}
	m.granted.Add(1)
	h := &hold{shared: shared, start: time.Now()}
	m.use(t, lock)
	h.end = time.Now()
	h.sound = lock.Err() == nil
	if err := lock.Unlock(ctx); err != nil {
		m.ended.Add(1)
		// Without trouble the lock was held as long as Err said so.
		h.sound = h.sound && m.strict
		if m.strict && !errors.Is(err, advisory.ErrClosed) {
			t.Errorf("unlock: %v", err)
		}
	}
	m.add(lock.Keys(), h)
}

func (m *member) acquire(ctx context.Context, t *testing.T) (lock *advisory.Lock, shared bool, err error) {
	t.Helper()
	key, other := stressKeys[rand.IntN(len(stressKeys))], stressKeys[rand.IntN(len(stressKeys))]
	locker := m.current()
	switch n := rand.IntN(14); n {
	case 0, 1:
		lock, err = locker.TryLock(ctx, key)
	case 2, 3:
		lock, err = locker.Lock(ctx, key)
	case 4:
		lock, err = locker.TryRLock(ctx, key)
		shared = true
	case 5, 6:
		lock, err = locker.RLock(ctx, key)
		shared = true
	case 7:
		lock, err = locker.TryLockAll(ctx, key, other)
	case 8:
		lock, err = locker.LockAll(ctx, key, other)
	case 9:
		lock, err = locker.Semaphore("stress", 2).TryAcquire(ctx)
	case 10:
		lock, err = locker.Semaphore("stress", 2).Acquire(ctx)
	default:
		var s *advisory.Session
		if s, err = m.currentSession(ctx, t); err != nil {
			return nil, false, err
		}
		switch n {
		case 11:
			lock, err = s.TryLock(ctx, key)
		case 12:
			lock, err = s.TryRLock(ctx, key)
			shared = true
		default:
			lock, err = s.TryLockAll(ctx, key, other)
		}
		if errors.Is(err, advisory.ErrLost) || errors.Is(err, advisory.ErrClosed) {
			m.forget(s)
		}
	}
	return lock, shared, err
}

// forget makes room for another Session.
func (m *member) forget(s *advisory.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session == s {
		m.session = nil
	}
}

// use holds the lock for a moment, in a transaction of its session at times.
func (m *member) use(t *testing.T, lock *advisory.Lock) {
	t.Helper()
	switch rand.IntN(6) {
	case 0:
		err := lock.Tx(context.Background(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(context.Background(), "SELECT pg_sleep(0.001)")
			return err
		})
		if m.strict && err != nil && !errors.Is(err, advisory.ErrClosed) {
			t.Errorf("transaction: %v", err)
		}
	case 1:
		select {
		case <-lock.Done():
		case <-time.After(time.Duration(rand.Int64N(int64(3 * time.Millisecond)))):
		}
	default:
	}
}

// checkRefusal is for an error of a call that locks.
func (m *member) checkRefusal(t *testing.T, err error) {
	t.Helper()
	if !m.strict {
		return
	}
	for _, expected := range []error{
		advisory.ErrNotAcquired, advisory.ErrPoolExhausted, advisory.ErrClosed,
		context.DeadlineExceeded, context.Canceled,
	} {
		if errors.Is(err, expected) {
			return
		}
	}
	t.Errorf("refused: %v", err)
}

// hold is the time in which a lock was certainly believed to be held, from after
// the grant to before the unlock. It is sound if nothing has said otherwise.
type hold struct {
	shared     bool
	start, end time.Time
	sound      bool
}

// records are all sound holds by lock.
type records struct {
	mu    sync.Mutex
	holds map[string][]*hold
}

func (r *records) add(keys []advisory.Key, h *hold) {
	if !h.sound {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holds == nil {
		r.holds = make(map[string][]*hold)
	}
	for _, k := range keys {
		r.holds[k.SQL()] = append(r.holds[k.SQL()], h)
	}
}

// check looks for two who held one lock at the same time and must not have.
func (r *records) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, holds := range r.holds {
		slices.SortFunc(holds, func(a, b *hold) int { return a.start.Compare(b.start) })
		var exclusive, shared *hold // of those before, who held longest
		for _, h := range slices.Compact(holds) {
			for _, before := range []*hold{exclusive, shared} {
				if before != nil && before.end.After(h.start) && (!before.shared || !h.shared) {
					t.Errorf("lock %s: held (shared: %t) until %s after another (shared: %t) got it, by two holds without a gap",
						key, before.shared, before.end.Sub(h.start), h.shared)
				}
			}
			longest := &exclusive
			if h.shared {
				longest = &shared
			}
			if *longest == nil || h.end.After((*longest).end) {
				*longest = h
			}
		}
	}
}
