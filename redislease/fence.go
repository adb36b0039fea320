package redislease

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed fence.lua
var fenceText string

// StaleError is the refusal of a write whose token is below the highest that the
// resource has accepted. It matches [ErrStale].
type StaleError struct {
	Resource string
	Token    int64 // which the write carried
	Current  int64 // the highest that was accepted
}

// Error describes the refusal.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%swrite refused: token %d of resource %q is stale, the highest accepted is %d", prefix, e.Token, e.Resource, e.Current)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Fence keeps late holders from writing to what is in Redis: each write carries the
// token of its holder, in a script that Redis runs as one step, and is refused if a
// higher token has written before. The tokens may be those of this package or of package
// fencing, not of both for one resource. A Fence is safe for concurrent use.
//
// It bites from the first write of the new holder on; [Fence.Raise] makes it bite before.
// Only writes through the Fence are checked. The mark, which is the highest token, is a
// key without an end next to the data: what loses it loses the data too. A token that is
// too high by mistake locks all others out.
type Fence struct {
	client redis.Scripter
	prefix string
}

// NewFence returns a Fence on the Redis of the guarded data. The mark of a resource is
// the key with the prefix and the resource in braces, followed by ":mark"; an empty
// prefix means "lease:". In a Cluster the data of a resource must be in the same slot, by
// the same hash tag: {nightly} in the name of each key for the resource nightly.
func NewFence(client redis.Scripter, prefix string) (*Fence, error) {
	if client == nil {
		return nil, errors.New("redislease: NewFence needs a client, and got nil")
	}
	if prefix == "" {
		prefix = defaultPrefix
	}
	if strings.ContainsAny(prefix, "{}") {
		return nil, fmt.Errorf("redislease: the prefix is %q; it can't have braces", prefix)
	}
	return &Fence{client: client, prefix: prefix}, nil
}

// Script is a script that writes behind a [Fence].
type Script struct{ script *redis.Script }

// NewScript makes a Script of Lua code that writes. In it KEYS and ARGV are those that
// are given to [Fence.Run].
func NewScript(body string) *Script { return &Script{redis.NewScript(fenceText + body)} }

var (
	raiseScript = NewScript(`return 'OK'`)
	setScript   = NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
	delScript   = NewScript(`return redis.call('DEL', KEYS[1])`)
)

// Run runs the script if the token is not below the highest that the resource has
// accepted, and accepts it. It returns what the script does; or a [StaleError], and
// Redis has changed nothing. An error of the connection leaves open whether the script has
// run; if the client repeats it, it may have run twice.
func (f *Fence) Run(ctx context.Context, s *Script, resource string, token int64, keys []string, args ...any) (any, error) {
	if token <= 0 {
		return nil, fmt.Errorf("redislease: token %d of resource %q is not valid: tokens start at 1", token, resource)
	}
	k, err := keysOf(f.prefix, 0, resource)
	if err != nil {
		return nil, err
	}
	text := strconv.FormatInt(token, 10)
	reply, err := s.script.Run(ctx, f.client, slices.Concat([]string{k.lock + ":mark"}, keys), slices.Concat([]any{text}, args)...).Result()
	var refusal redis.Error
	if errors.As(err, &refusal) {
		if mark, ok := strings.CutPrefix(refusal.Error(), "STALETOKEN "); ok {
			current, _ := strconv.ParseInt(mark, 10, 64) // a mark of another's making stays 0
			return nil, &StaleError{Resource: resource, Token: token, Current: current}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("redislease: write for resource %q: %w", resource, err)
	}
	return reply, nil
}

// Set sets a key, as Run does.
func (f *Fence) Set(ctx context.Context, resource string, token int64, key string, value any) error {
	_, err := f.Run(ctx, setScript, resource, token, []string{key}, value)
	return err
}

// Del deletes a key, as Run does. A key that is not there is no error.
func (f *Fence) Del(ctx context.Context, resource string, token int64, key string) error {
	_, err := f.Run(ctx, delScript, resource, token, []string{key})
	return err
}

// Raise accepts a token without a write, so that those below are refused from then on. A
// holder calls it first.
func (f *Fence) Raise(ctx context.Context, resource string, token int64) error {
	_, err := f.Run(ctx, raiseScript, resource, token, nil)
	return err
}

// Marks is where a Gate of package gate keeps its marks in Redis, by the same keys as a
// [Fence]: the marks are as durable as Redis is set to be.
type Marks struct{ fence *Fence }

// Marks returns the marks of the Fence.
func (f *Fence) Marks() Marks { return Marks{f} }

// Raise raises the mark of a resource to the token, unless it is higher, and returns it.
func (m Marks) Raise(ctx context.Context, resource string, token int64) (int64, error) {
	err := m.fence.Raise(ctx, resource, token)
	var stale *StaleError
	if errors.As(err, &stale) {
		return stale.Current, nil
	}
	return token, err
}
