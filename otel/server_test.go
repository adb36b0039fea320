package otel_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// served is a bundle whose Observer is told of a Locker on a real server.
type served struct {
	*bundle
	db     *pgtest.Database
	locker *advisory.Locker
}

func serve(t *testing.T, configure ...func(*pgxpool.Config)) *served {
	t.Helper()
	s := &served{bundle: setup(t), db: pgtest.New(t)}
	locker, err := advisory.New(s.db.Pool(t, configure...), &advisory.Config{Observer: s.observer})
	require.NoError(t, err)
	s.locker = locker
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("close the locker: %v", err)
		}
		s.allTold(t)
	})
	return s
}

// allTold waits until the Observer was told that each lock has ended: at a loss
// nothing else waits for that.
func (s *served) allTold(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		return s.observer.Open() == 0 && !slices.ContainsFunc(s.values(t), func(line string) bool {
			return strings.HasPrefix(line, "pgadvisory.lock.held")
		})
	}, time.Minute, time.Millisecond)
}

// server are the attributes of where it connects to.
func (s *served) server(t *testing.T) map[string]string {
	t.Helper()
	c := s.db.Conn(t).Config()
	port := strconv.Itoa(int(c.Port))
	return map[string]string{
		"server.address": c.Host, "server.port": port, "db.namespace": c.Database,
		"network.peer.address": c.Host, "network.peer.port": port,
	}
}

func TestServer_aLockThatIsUnlocked(t *testing.T) {
	t.Parallel()
	s := serve(t)
	lock, err := s.locker.Lock(t.Context(), advisory.Name("invoices"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"pgadvisory.lock.held exclusive: 1",
		"pgadvisory.lock.wait.duration exclusive granted: 1",
	}, s.values(t))
	require.NoError(t, lock.Unlock(t.Context()))

	require.Equal(t, []string{
		"pgadvisory.lock.hold.duration exclusive unlocked: 1",
		"pgadvisory.lock.wait.duration exclusive granted: 1",
	}, s.values(t))
	common := with(s.server(t),
		"db.system.name", "postgresql",
		"pgadvisory.lock.keys", `["\"invoices\" (`+number(t, s.db, "invoices")+`)"]`,
		"pgadvisory.lock.mode", "exclusive",
		"pgadvisory.backend.pid", strconv.Itoa(int(lock.BackendPID())))
	require.Equal(t, with(common, "pgadvisory.lock.outcome", "granted", "pgadvisory.lock.try", "false"),
		attributes(s.ended(t, "pgadvisory.lock")))
	require.Equal(t, with(common, "pgadvisory.lock.outcome", "unlocked"), attributes(s.ended(t, "pgadvisory.hold")))
}

func TestServer_aLockThatAnotherHolds(t *testing.T) {
	t.Parallel()
	s := serve(t)
	_, err := s.db.Conn(t).Exec(t.Context(), "SELECT pg_advisory_lock(7)")
	require.NoError(t, err)
	_, err = s.locker.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)

	require.Equal(t, []string{"pgadvisory.lock.wait.duration exclusive not_acquired: 1"}, s.values(t))
	require.Equal(t, codes.Unset, s.ended(t, "pgadvisory.lock").Status().Code)
}

func TestServer_aWaitThatIsGivenUp(t *testing.T) {
	t.Parallel()
	s := serve(t)
	_, err := s.db.Conn(t).Exec(t.Context(), "SELECT pg_advisory_lock(7)")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = s.locker.Lock(ctx, advisory.ID(7))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	require.Equal(t, []string{"pgadvisory.lock.wait.duration exclusive canceled: 1"}, s.values(t))
	span := s.ended(t, "pgadvisory.lock")
	require.GreaterOrEqual(t, span.EndTime().Sub(span.StartTime()), 150*time.Millisecond)
	require.Equal(t, codes.Error, span.Status().Code)
}

func TestServer_aPoolThatHasNoConnectionLeft(t *testing.T) {
	t.Parallel()
	s := serve(t, func(c *pgxpool.Config) { c.MaxConns = 2 }) // one of them is the reserve
	_, err := s.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	_, err = s.locker.TryLock(t.Context(), advisory.ID(2))
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)

	require.Contains(t, s.values(t), "pgadvisory.lock.wait.duration exclusive pool_exhausted: 1")
}

func TestServer_aLockThatIsLostWithItsBackend(t *testing.T) {
	t.Parallel()
	s := serve(t)
	lock, err := s.locker.RLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	_, err = s.db.Conn(t).Exec(t.Context(), "SELECT pg_terminate_backend($1)", int(lock.BackendPID()))
	require.NoError(t, err)
	<-lock.Done()
	require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
	s.allTold(t)

	require.Equal(t, []string{
		"pgadvisory.lock.hold.duration shared lost: 1",
		"pgadvisory.lock.lost terminated: 1",
		"pgadvisory.lock.wait.duration shared granted: 1",
	}, s.values(t))
	span := s.ended(t, "pgadvisory.hold")
	require.Equal(t, codes.Error, span.Status().Code)
	require.Equal(t, "terminated", attributes(span)["pgadvisory.lost.reason"])
	require.Equal(t, "57P01", attributes(span)["error.type"])
}

func TestServer_aLockOfSeveralKeysCountsOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	_, err := s.locker.LockAll(t.Context(), advisory.ID(2), advisory.ID(1))
	require.NoError(t, err)
	require.Contains(t, s.values(t), "pgadvisory.lock.held exclusive: 1")
	require.Equal(t, `["2","1"]`, attributes(s.ended(t, "pgadvisory.lock"))["pgadvisory.lock.keys"])
	require.NoError(t, s.locker.Close(t.Context()))

	require.Equal(t, []string{
		"pgadvisory.lock.hold.duration exclusive unlocked: 1",
		"pgadvisory.lock.wait.duration exclusive granted: 1",
	}, s.values(t))
}

// number asks the server for what a name hashes to.
func number(t *testing.T, db *pgtest.Database, name string) string {
	t.Helper()
	var n int64
	require.NoError(t, db.Conn(t).QueryRow(t.Context(), "SELECT hashtextextended($1, 0)", name).Scan(&n))
	return strconv.FormatInt(n, 10)
}

// with returns common and the pairs of names and values that follow.
func with(common map[string]string, pairs ...string) map[string]string {
	all := maps.Clone(common)
	for i := 0; i < len(pairs); i += 2 {
		all[pairs[i]] = pairs[i+1]
	}
	return all
}
