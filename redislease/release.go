package redislease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// releaseAttempts bounds how often Unlock tries.
const releaseAttempts = 3

// release releases a lease for its holder. What can't be released now, the keeper
// tries again in the background until it has ended by its TTL.
func (k *keeper) release(ctx context.Context, lease *Lease) (answer, error) {
	var earlier error
	for attempt := 1; ; attempt++ {
		a, err := k.releaseOnce(ctx, lease.lock, lease.owner)
		switch {
		case err == nil && a == answerMissing && earlier != nil:
			// It may be that the attempt whose answer was lost has released it.
			return "", unavailable(earlier)
		case err == nil:
			return a, nil
		}
		var reply redis.Error
		if attempt == releaseAttempts || ctx.Err() != nil || errors.As(err, &reply) || errors.Is(err, redis.ErrClosed) {
			k.abandon(lease.lock, lease.owner)
			return "", unavailable(err)
		}
		earlier = err
	}
}

// releaseOnce returns when ctx ends, whatever the client does.
func (k *keeper) releaseOnce(ctx context.Context, lock, owner string) (answer, error) {
	if k.leaser.own != k.leaser.client {
		return k.ask(ctx, lock, owner) // a client of our own obeys the deadline
	}
	type result struct {
		a   answer
		err error
	}
	answers := make(chan result, 1)
	ask := func() {
		a, err := k.ask(ctx, lock, owner)
		answers <- result{a, err}
	}
	if !k.leaser.spawn(ask) {
		ask()
	}
	select {
	case r := <-answers:
		return r.a, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// ask has Redis release a lease, and wakes those who wait for it in this process.
func (k *keeper) ask(ctx context.Context, lock, owner string) (answer, error) {
	a, notSent, err := release(ctx, k.leaser.own, lock, owner)
	if notSent != "" {
		k.leaser.signals.denied(errors.New(notSent))
	}
	if err == nil {
		k.leaser.signals.wake(lock)
	}
	return a, err
}

// abandoned is an attempt to acquire of which nobody knows whether it has become a
// lease, or a lease whose release was not answered.
type abandoned struct {
	lock  string
	until time.Duration // has it ended by itself
	tries int           // to which Redis said that there is nothing
}

// abandonedTries is how often Redis has to say that there is no lease: the request to
// acquire may still be on its way, on another connection.
const abandonedTries = 2

// abandon releases a lease in the background, as soon and as long as that is of use.
func (k *keeper) abandon(lock, owner string) {
	k.mu.Lock()
	isKept := !k.closed
	if isKept {
		now := k.leaser.now()
		if len(k.abandoned) == 0 {
			k.nextSweep = now
		}
		k.abandoned[owner] = abandoned{lock: lock, until: now + k.leaser.config.TTL}
		isKept = k.startLocked(k.nextSweep)
	}
	k.mu.Unlock()
	if !isKept {
		// Close waits for who calls this, and so for this, which UnlockTimeout bounds.
		k.leaser.work.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), k.leaser.config.UnlockTimeout)
			defer cancel()
			_, _, _ = release(ctx, k.leaser.own, lock, owner) // else it ends by its TTL
		})
	}
}

// sweepLocked begins to release what was abandoned. mu must be held.
func (k *keeper) sweepLocked(now time.Duration) {
	var locks, owners []string
	for owner, a := range k.abandoned {
		if now >= a.until {
			delete(k.abandoned, owner)
			continue
		}
		locks, owners = append(locks, a.lock), append(owners, owner)
	}
	if len(owners) == 0 {
		return
	}
	k.sweeping = true
	// Ends with its round trips, which renewLimit or the client's timeouts bound.
	k.sweeping = k.leaser.spawn(func() {
		answers := k.releaseAll(context.Background(), locks, owners)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.sweeping = false
		k.nextSweep = k.leaser.now() + k.leaser.config.retryAfter()
		for i, owner := range owners {
			a := k.abandoned[owner]
			switch answers[i] {
			case answerHeld, answerTaken:
				delete(k.abandoned, owner)
			case answerMissing:
				if a.tries++; a.tries >= abandonedTries {
					delete(k.abandoned, owner)
					continue
				}
				k.abandoned[owner] = a
			default: // no answer
			}
		}
		k.wake()
	})
}

// releaseAll releases leases in as few round trips as there are batches. An answer
// that did not come is empty.
func (k *keeper) releaseAll(ctx context.Context, locks, owners []string) []answer {
	ctx, cancel := context.WithTimeout(ctx, max(k.leaser.config.renewLimit(), time.Second))
	defer cancel()
	answers := make([]answer, 0, len(owners))
	for some := range slices.Chunk(owners, batch) {
		first := len(answers)
		commands := make([]*redis.Cmd, len(some))
		_, _ = k.leaser.own.Pipelined(ctx, func(p redis.Pipeliner) error { // the errors are the commands' too
			for i, owner := range some {
				commands[i] = releaseScript.Eval(ctx, p, []string{locks[first+i]}, owner)
			}
			return nil
		})
		for i, c := range commands {
			text, err := c.Text()
			a, _ := parseReleased(text)
			answers = append(answers, a)
			if err == nil {
				k.leaser.signals.wake(locks[first+i])
			}
		}
	}
	return answers
}

// closeLeases ends all leases, and releases them.
func (k *keeper) closeLeases(ctx context.Context) error {
	k.mu.Lock()
	k.closed = true
	var leases []*Lease
	for lease := range k.leases {
		leases = append(leases, lease)
	}
	var locks, owners []string
	for owner, a := range k.abandoned {
		locks, owners = append(locks, a.lock), append(owners, owner)
	}
	k.mu.Unlock()

	var ours []*Lease
	for _, lease := range leases {
		lease.expire()
		lease.unlocking.Do(func() {
			lease.end(ErrClosed)
			k.remove(lease)
			lease.result = wrap("unlock", lease.resource, ErrClosed)
			if err := lease.Err(); errors.Is(err, ErrLost) {
				lease.result = err
				return
			}
			ours = append(ours, lease)
			locks, owners = append(locks, lease.lock), append(owners, lease.owner)
		})
	}
	answers := k.releaseAll(ctx, locks, owners)[len(owners)-len(ours):]
	var errs error
	for i, lease := range ours {
		if answers[i] != answerHeld {
			errs = errors.Join(errs, wrap("unlock", lease.resource, fmt.Errorf("%w: it did not say that it released the lock", ErrUnavailable)))
		}
	}
	return errs
}
