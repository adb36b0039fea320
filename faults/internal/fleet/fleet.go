//go:build unix

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// restLimit bounds the wait until all workers rest.
const restLimit = 30 * time.Second

// Fleet is all workers. Its methods are for one goroutine.
type Fleet struct {
	Members []*Member

	log *history.Log
}

// Launch starts n workers like the one that is given, on a server at addr, and on a Redis if
// it has the address of one. The
// caller calls End or Destroy; on an error nothing is left.
func Launch(n int, like worker.Config, addr string, log *history.Log) (*Fleet, error) {
	f := &Fleet{log: log}
	for number := 1; number <= n; number++ {
		m, err := launch(number, like, addr, log)
		if err != nil {
			f.Destroy()
			return nil, err
		}
		f.Members = append(f.Members, m)
	}
	return f, nil
}

func launch(number int, like worker.Config, addr string, log *history.Log) (*Member, error) {
	proxy, err := faultproxy.Listen(addr)
	if err != nil {
		return nil, err
	}
	m := &Member{Proxy: proxy, log: log, config: like}
	m.config.Worker = number
	m.config.DSN, err = through(like.DSN, proxy)
	if err == nil && like.Redis != "" {
		m.RedisProxy, err = faultproxy.Listen(like.Redis)
	}
	if err == nil {
		if m.RedisProxy != nil {
			m.config.Redis = m.RedisProxy.Addr().String()
		}
		err = m.start()
	}
	if err != nil {
		m.closeProxies()
		return nil, err
	}
	return m, nil
}

// through is the address of a server by way of a proxy.
func through(dsn string, proxy *faultproxy.Proxy) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("the server's address is no URL") // it has a password
	}
	u.Host = proxy.Addr().String()
	return u.String(), nil
}

// Rest has all workers rest.
func (f *Fleet) Rest(ctx context.Context) error {
	from := f.log.Len()
	for _, m := range f.Members {
		if err := m.Tell(worker.OrderRest); err != nil {
			return err
		}
	}
	return f.awaitAll(ctx, from, history.Rest)
}

// awaitAll waits until each worker has told an event of a kind.
func (f *Fleet) awaitAll(ctx context.Context, from int, kind history.Kind) error {
	ctx, cancel := context.WithTimeout(ctx, restLimit)
	defer cancel()
	waiting := make(map[int]bool)
	for _, m := range f.Members {
		waiting[m.Number()] = true
	}
	if !f.log.Await(ctx, from, func(e history.Event) bool {
		if e.Kind == kind {
			delete(waiting, e.Worker)
		}
		return len(waiting) == 0
	}) {
		return fmt.Errorf("workers %v: no %q in %s", waiting, kind, restLimit)
	}
	return nil
}

// End ends resting workers in good order.
func (f *Fleet) End() error {
	var errs []error
	for _, m := range f.Members {
		if err := m.Tell(worker.OrderEnd); err != nil {
			errs = append(errs, err)
		}
	}
	for _, m := range f.Members {
		if err := errors.Join(m.wait(), m.err); err != nil {
			errs = append(errs, fmt.Errorf("worker %d: %w", m.Number(), err))
		}
		m.closeProxies()
	}
	f.Members = nil
	return errors.Join(errs...)
}

// Destroy kills what is left.
func (f *Fleet) Destroy() {
	for _, m := range f.Members {
		_ = m.Kill() // it may have ended
		m.closeProxies()
	}
	f.Members = nil
}

// Retarget sends all connections to come to another server.
func (f *Fleet) Retarget(addr string) {
	for _, m := range f.Members {
		m.Proxy.Retarget(addr)
	}
}
