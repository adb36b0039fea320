package advisory_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// modelKeys is how many keys the calls of a run meet at.
const modelKeys = 3

// modelRun is one interleaving: several Lockers on one server, and calls that lock, wait,
// give up and unlock at times that a seed chooses.
type modelRun struct {
	server *modelServer

	mu      sync.Mutex
	random  *rand.Rand
	writers [modelKeys]int
	readers [modelKeys]int
	granted int
	wrong   string
}

// Whatever the order of what happens: exclusion holds, every wait ends, nothing stays
// locked, and no connection or goroutine is left.
func TestLocker_inManyInterleavings(t *testing.T) {
	t.Parallel()
	granted, runs, start := 0, 0, time.Now()
	limit := 5 * time.Second
	if testing.Short() {
		limit = time.Second
	}
	for seed := uint64(0); time.Since(start) < limit; seed++ {
		synctest.Test(t, func(t *testing.T) { granted += runModel(t, seed) })
		if runs++; t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d runs, %d locks granted", runs, granted)
	require.NotZero(t, granted)
}

func runModel(t *testing.T, seed uint64) int {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	r := &modelRun{
		server: &modelServer{random: rand.New(rand.NewPCG(seed, 2)), locks: make(map[string]*modelLock)},
		random: random,
	}
	if seed%3 == 0 { // sessions die in every third run
		r.server.deadly = 0.02
	}
	var callers sync.WaitGroup
	lockers := make([]*advisory.Locker, 1+random.IntN(7))
	var stops []func()
	for i := range lockers {
		pool := r.server.pool(int32(1 + random.IntN(4)))
		locker, err := advisory.New(pool, &advisory.Config{Reserve: advisory.NoReserve})
		require.NoError(t, err)
		lockers[i] = locker
		stops = append(stops, func() {
			require.NoError(t, locker.Close(context.Background()))
			require.Empty(t, advisory.Leftovers(locker), "seed %d", seed)
			require.Zero(t, pool.Stat().AcquiredConns(), "seed %d", seed)
			pool.Close()
		})
	}
	for range 3 + random.IntN(12) {
		callers.Go(func() {
			for range 4 {
				r.call(lockers[r.intN(len(lockers))])
			}
		})
	}
	callers.Wait()
	for _, stop := range stops {
		stop()
	}
	r.server.work.Wait()
	require.Zero(t, r.server.held(), "seed %d: nothing stays locked", seed)
	require.Empty(t, r.wrong, "seed %d", seed)
	return r.granted
}

func (r *modelRun) intN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(n)
}

// call locks in one of the ways, holds for a while and unlocks.
func (r *modelRun) call(l *advisory.Locker) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.intN(3000))*time.Millisecond)
	if r.intN(3) == 0 {
		ctx, cancel = context.WithCancel(context.Background())
	}
	defer cancel()
	keys := []int{r.intN(modelKeys)}
	shared := false
	var lock *advisory.Lock
	var err error
	key := func(i int) advisory.Key { return advisory.ID(int64(keys[i])) }
	switch r.intN(7) {
	case 0:
		lock, err = l.TryLock(ctx, key(0))
	case 1:
		shared = true
		lock, err = l.TryRLock(ctx, key(0))
	case 2:
		shared = true
		lock, err = l.RLock(ctx, key(0))
	case 3:
		keys = append(keys, (keys[0]+1)%modelKeys)
		lock, err = l.TryLockAll(ctx, key(0), key(1))
	case 4:
		keys = append(keys, (keys[0]+1)%modelKeys)
		lock, err = l.LockAll(ctx, key(0), key(1))
	default:
		lock, err = l.Lock(ctx, key(0))
	}
	if err != nil {
		r.judge(ctx, err)
		return
	}
	r.enter(lock, keys, shared, 1)
	<-time.After(time.Duration(r.intN(50)) * time.Millisecond)
	r.enter(lock, keys, shared, -1)
	if err := lock.Unlock(context.Background()); err != nil && !errors.Is(err, advisory.ErrLost) {
		r.fail("unlock: " + err.Error())
	}
}

// judge notes an error that a call must not return.
func (r *modelRun) judge(ctx context.Context, err error) {
	switch {
	case errors.Is(err, advisory.ErrNotAcquired), errors.Is(err, advisory.ErrPoolExhausted):
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
	case r.server.deadly > 0: // whatever a session that died made of it
	default:
		r.fail(err.Error())
	}
}

func (r *modelRun) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = text
}

// enter counts the holders of keys. It does not check for overlaps where sessions die:
// a holder learns of a loss later than the next one is granted the lock.
func (r *modelRun) enter(_ *advisory.Lock, keys []int, shared bool, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 {
		r.granted++
	}
	for _, k := range keys {
		if shared {
			r.readers[k] += n
		} else {
			r.writers[k] += n
		}
		if r.server.deadly == 0 && (r.writers[k] > 1 || r.writers[k] == 1 && r.readers[k] > 0) {
			r.wrong = "two hold one lock"
		}
	}
}
