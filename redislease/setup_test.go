//go:build unix

package redislease_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/internal/redistest"
	"github.com/pgadvisory/pgadvisory/redislease"
)

// limit bounds every wait for something that is expected to happen.
const limit = 30 * time.Second

// bundle is a server, and what looks at it from outside.
type bundle struct {
	server   *redistest.Server // nil if it is shared
	addr     string
	options  *redis.Options
	prefix   string
	observer *redis.Client
}

// setup is on the server that all tests share, with a prefix of its own.
func setup(t *testing.T) *bundle {
	t.Helper()
	options, err := redis.ParseURL(redistest.URL(t))
	require.NoError(t, err)
	b := &bundle{addr: options.Addr, options: options, prefix: t.Name() + "-" + rand.Text() + ":"}
	b.observer = b.client(t)
	return b
}

// alone is on a server of the test's own.
func alone(t *testing.T, args ...string) *bundle {
	t.Helper()
	s := redistest.Start(t, args...)
	b := &bundle{server: s, addr: s.Addr(), options: &redis.Options{Addr: s.Addr()}, prefix: "lease:"}
	b.observer = b.client(t)
	return b
}

func (b *bundle) client(t *testing.T, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	options := *b.options
	options.DialTimeout = limit
	for _, c := range change {
		c(&options)
	}
	client := redis.NewClient(&options)
	t.Cleanup(func() { _ = client.Close() }) // a test may have closed it
	return client
}

// proxied is a client that goes through a proxy.
func (b *bundle) proxied(t *testing.T, change ...func(*redis.Options)) (*redis.Client, *faultproxy.Proxy) {
	t.Helper()
	proxy := faultproxy.Start(t, b.addr)
	return b.client(t, append(change, func(o *redis.Options) { o.Addr = proxy.Addr().String() })...), proxy
}

func (b *bundle) leaser(t *testing.T, config *redislease.Config, change ...func(*redis.Options)) *redislease.Leaser {
	t.Helper()
	return b.on(t, b.client(t, change...), config)
}

// on is a Leaser on a client, which is closed at the end of the test.
func (b *bundle) on(t *testing.T, client redis.UniversalClient, config *redislease.Config) *redislease.Leaser {
	t.Helper()
	c := redislease.Config{}
	if config != nil {
		c = *config
	}
	if c.Prefix == "" {
		c.Prefix = b.prefix
	}
	l, err := redislease.New(client, &c)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Log(err) // of a server that a test has killed
		}
	})
	return l
}

// key is the name of a resource's lock.
func (b *bundle) key(resource string) string { return b.prefix + "{" + resource + "}" }

// held is the owner that the server has, or nothing.
func (b *bundle) held(t *testing.T, resource string) string {
	t.Helper()
	text, err := b.observer.Get(t.Context(), b.key(resource)).Result()
	if err == redis.Nil { //nolint:errorlint // as documented
		return ""
	}
	require.NoError(t, err)
	return text
}

// locks are the names of all locks that the server has.
func (b *bundle) locks(t *testing.T) []string {
	t.Helper()
	keys, err := b.observer.Keys(t.Context(), b.prefix+"*").Result()
	require.NoError(t, err)
	var locks []string
	for _, k := range keys {
		if !strings.HasSuffix(k, ":token") {
			locks = append(locks, k)
		}
	}
	return locks
}

// calls is how often the server has executed a command.
func (b *bundle) calls(t *testing.T, command string) int64 {
	t.Helper()
	info, err := b.observer.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	stats := info["Commandstats"]["cmdstat_"+command]
	n, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
	return parse(t, n)
}

func parse(t *testing.T, text string) int64 {
	t.Helper()
	var n int64
	for _, c := range text {
		n = n*10 + int64(c-'0')
	}
	return n
}

func mustLock(t *testing.T, l *redislease.Leaser, resource string) *redislease.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	lease, err := l.Lock(ctx, resource)
	require.NoError(t, err)
	return lease
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(limit)
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-deadline:
			require.FailNow(t, "waited too long", "until %s", what)
		}
	}
}

// receive waits for what a goroutine of the test sends.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-time.After(limit):
		require.FailNow(t, "nothing came in time")
		panic("not reached")
	}
}

type attempt struct {
	lease *redislease.Lease
	err   error
}

// inBackground runs a locking method on another goroutine, which ends with it.
func inBackground(lock func() (*redislease.Lease, error)) <-chan attempt {
	result := make(chan attempt, 1)
	go func() {
		lease, err := lock()
		result <- attempt{lease, err}
	}()
	return result
}

func reason(t *testing.T, err error) redislease.LostReason {
	t.Helper()
	var lost *redislease.LostError
	require.ErrorAs(t, err, &lost)
	return lost.Reason
}
