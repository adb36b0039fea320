package redislease

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// signals subscribes to the releases of the locks that calls of a Leaser wait for, on
// one connection. What it hears is a hint: whoever waits asks Redis, and does so without
// any hint when the lease that it saw would have ended.
type signals struct {
	leaser *Leaser
	poke   chan struct{} // that wanted has changed, for the goroutine

	// mu guards the fields below. Nothing blocks under it.
	mu      sync.Mutex
	running bool
	closed  bool
	wanted  map[string]struct{} // channels

	denial sync.Once
}

const (
	// subscriptionIdle is how long the connection is kept without a subscription.
	subscriptionIdle = 5 * time.Second
	// silence is how long nothing may come before the connection is probed, and once
	// more before it is given up.
	silence = 5 * time.Second
	// subscribeLimit bounds the request to subscribe.
	subscribeLimit = 5 * time.Second
	// resubscribeAfter is the pause after an error, and deniedPause that after Redis
	// has refused.
	resubscribeAfter = 100 * time.Millisecond
	deniedPause      = time.Minute
)

func newSignals(l *Leaser) *signals {
	return &signals{leaser: l, poke: make(chan struct{}, 1), wanted: make(map[string]struct{})}
}

// subscribe has the releases of a lock signalled. It does not wait for that; once
// Redis has confirmed, there is a signal.
func (s *signals) subscribe(lock string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.wanted[lock]; ok || s.closed {
		return
	}
	s.wanted[lock] = struct{}{}
	s.changedLocked()
}

func (s *signals) unsubscribe(lock string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.wanted[lock]; ok {
		delete(s.wanted, lock)
		s.changedLocked()
	}
}

// changedLocked starts the goroutine or tells it. mu must be held.
func (s *signals) changedLocked() {
	if !s.running && len(s.wanted) > 0 {
		s.running = s.leaser.spawn(s.run)
		return
	}
	select {
	case s.poke <- struct{}{}:
	default: // it will look
	}
}

// close ends the subscriptions.
func (s *signals) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	clear(s.wanted)
}

// wake signals a release.
func (s *signals) wake(lock string) { s.leaser.wakeLine(lock) }

// denied logs, once, that Redis does not let this user publish or subscribe.
func (s *signals) denied(err error) {
	s.denial.Do(func() {
		s.leaser.config.Logger.Warn("releases are not signalled: who waits is woken by the end of the lease only", "error", err)
	})
}

// run ends with the Leaser, or when nothing was wanted for a while.
func (s *signals) run() {
	for {
		err := s.connection()
		if err == nil {
			return
		}
		pause := resubscribeAfter
		if redis.IsPermissionError(err) {
			s.denied(err)
			pause = deniedPause
		}
		if !s.pause(pause) {
			return
		}
	}
}

func (s *signals) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.leaser.closing:
		return false
	}
}

// connection subscribes on one connection to what is wanted, until an error. It
// returns nil when nothing is wanted any more, or the Leaser was closed.
func (s *signals) connection() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pubsub := s.leaser.own.Subscribe(ctx)
	failed := make(chan error, 1)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer func() { _ = pubsub.Close() }() // ends the listener
	listens := false
	subscribed := make(map[string]struct{})
	for {
		idle := s.update(ctx, pubsub, subscribed)
		if !listens && len(subscribed) > 0 {
			listens = true
			listening.Go(func() { failed <- s.listen(ctx, pubsub) })
		}
		var isIdle <-chan time.Time
		if idle {
			isIdle = time.After(subscriptionIdle)
		}
		select {
		case <-s.poke:
		case err := <-failed:
			return err
		case <-isIdle:
			if s.stopIdle() {
				return nil
			}
		case <-s.leaser.closing:
			return nil
		}
	}
}

// stopIdle ends the goroutine unless something is wanted.
func (s *signals) stopIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = len(s.wanted) > 0
	return !s.running
}

// update subscribes to what is wanted and not subscribed, and the reverse. Errors show
// where the answers are read.
func (s *signals) update(ctx context.Context, pubsub *redis.PubSub, subscribed map[string]struct{}) (isIdle bool) {
	var more, less []string
	s.mu.Lock()
	for lock := range s.wanted {
		if _, ok := subscribed[lock]; !ok {
			more = append(more, lock)
			subscribed[lock] = struct{}{}
		}
	}
	for lock := range subscribed {
		if _, ok := s.wanted[lock]; !ok {
			less = append(less, lock)
			delete(subscribed, lock)
		}
	}
	isIdle = len(s.wanted) == 0
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, subscribeLimit)
	defer cancel()
	if len(more) > 0 {
		_ = pubsub.Subscribe(ctx, more...)
	}
	if len(less) > 0 {
		_ = pubsub.Unsubscribe(ctx, less...)
	}
	return isIdle
}

// listen signals what the connection hears. A connection that breaks is made anew by
// the client, which confirms each subscription then; what was released meanwhile is
// found by the signals of that.
func (s *signals) listen(ctx context.Context, pubsub *redis.PubSub) error {
	isProbed := false
	for {
		message, err := pubsub.ReceiveTimeout(ctx, silence)
		var network net.Error
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && errors.As(err, &network) && network.Timeout() && !isProbed:
			isProbed = true
			_ = pubsub.Ping(ctx) // an error shows at the next turn
			continue
		case err != nil:
			return err
		}
		isProbed = false
		switch message := message.(type) {
		case *redis.Message:
			s.wake(message.Channel)
		case *redis.Subscription:
			if message.Kind == "subscribe" {
				s.wake(message.Channel)
			}
		}
	}
}
