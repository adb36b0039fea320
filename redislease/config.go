package redislease

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Config is how a [Leaser] behaves. The zero Config, and a nil one, mean the
// documented defaults. Programs that lock the same resources need the same Prefix and
// Counters.
type Config struct {
	// TTL is for how long Redis keeps a lease that is not renewed, as when its holder
	// crashed. It is rounded down to milliseconds. Defaults to 15 s; 50 ms at least,
	// and 24 h at most. Leases are renewed every third of it.
	TTL time.Duration

	// Margin is the part of the TTL at whose beginning a holder stops, before Redis
	// lets go. The assumption is that in one TTL the clocks of the holder and of Redis
	// differ by less. Defaults to 0.2; 0.01 at least, and 0.4 at most.
	Margin float64

	// MaxHold ends each lease after so long, renewed or not. Defaults to no limit.
	MaxHold time.Duration

	// UnlockTimeout bounds Unlock, whatever its context says. Defaults to 5 s.
	UnlockTimeout time.Duration

	// Prefix begins the name of each key and channel. It can't have braces, which are
	// for hash tags. Defaults to "lease:".
	Prefix string

	// Counters is how many counters of tokens all resources share. Defaults to 0: each
	// resource has one of its own, which stays for ever and costs about 100 bytes of
	// Redis's memory, more for a long name. With a number, names can be as many as they
	// like; their tokens grow all the same, with gaps. In a Cluster the resources of
	// one counter share a slot. Changing the number makes other locks of the same
	// names.
	Counters int

	// ShareClient has all commands go through the client that [New] was given. By
	// default they use connections of their own, made with the same options, so that
	// they don't wait behind the application's own use of its pool, and that the end of
	// a context ends a call: as many for calls at a time as the client's pool may have,
	// and a few more. Hooks of the client are not called there. With ShareClient each
	// call has a goroutine more, and takes longer. In a Cluster locking methods use the
	// client that was given. Clients other than *redis.Client and *redis.ClusterClient
	// are always shared.
	ShareClient bool

	// Logger gets a line at level Warn for each lease that was not held to its end, and
	// one if the user of Redis may not publish. Defaults to silence.
	Logger *slog.Logger
}

const (
	defaultTTL           = 15 * time.Second
	minTTL               = 50 * time.Millisecond
	maxTTL               = 24 * time.Hour
	defaultMargin        = 0.2
	minMargin            = 0.01
	maxMargin            = 0.4
	defaultUnlockTimeout = 5 * time.Second
	defaultPrefix        = "lease:"
)

// withDefaults returns a validated copy.
func (c *Config) withDefaults() (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	if out.TTL == 0 {
		out.TTL = defaultTTL
	}
	if out.TTL < minTTL || out.TTL > maxTTL {
		return Config{}, fmt.Errorf("redislease: Config.TTL is %s; it must be from %s to %s, and 0 means %s", out.TTL, minTTL, maxTTL, defaultTTL)
	}
	out.TTL = out.TTL.Truncate(time.Millisecond)
	if out.Margin == 0 {
		out.Margin = defaultMargin
	}
	if !(out.Margin >= minMargin && out.Margin <= maxMargin) { // nor for NaN
		return Config{}, fmt.Errorf("redislease: Config.Margin is %v; it must be from %v to %v, and 0 means %v", out.Margin, minMargin, maxMargin, defaultMargin)
	}
	if out.MaxHold < 0 {
		return Config{}, fmt.Errorf("redislease: Config.MaxHold is %s; a duration can't be negative, and 0 means no limit", out.MaxHold)
	}
	if out.UnlockTimeout < 0 {
		return Config{}, fmt.Errorf("redislease: Config.UnlockTimeout is %s; a duration can't be negative, and 0 means %s", out.UnlockTimeout, defaultUnlockTimeout)
	}
	if out.UnlockTimeout == 0 {
		out.UnlockTimeout = defaultUnlockTimeout
	}
	if out.Prefix == "" {
		out.Prefix = defaultPrefix
	}
	if strings.ContainsAny(out.Prefix, "{}") {
		return Config{}, fmt.Errorf("redislease: Config.Prefix is %q; it can't have braces", out.Prefix)
	}
	if out.Counters < 0 {
		return Config{}, fmt.Errorf("redislease: Config.Counters is %d; give the number of counters that all resources share, or 0 for one each", out.Counters)
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out, nil
}

// trusted is for how long a holder trusts a lease, from before it was asked for.
func (c *Config) trusted() time.Duration {
	return c.TTL - time.Duration(float64(c.TTL)*c.Margin)
}

// The rhythm of renewals. All of it fits twice into what a holder trusts.
func (c *Config) renewEvery() time.Duration { return c.TTL / 3 }
func (c *Config) renewLimit() time.Duration { return c.TTL / 5 }
func (c *Config) retryAfter() time.Duration { return c.TTL / 20 }
