//go:build unix

package main

import (
	"context"
	"fmt"
)

const replicas = 3

// crew is all replicas.
type crew struct {
	members []*process
	reports chan report
	quit    chan struct{} // closed when nobody takes reports any more
}

func newCrew() *crew {
	return &crew{reports: make(chan report), quit: make(chan struct{})}
}

// Start starts the replicas. Close is needed also if that fails in the middle.
func (c *crew) Start(st *stage, folder string) error {
	for i := range replicas {
		s := settings{
			name:     fmt.Sprintf("replica-%d", i+1),
			dsn:      st.dsn,
			schema:   st.schema,
			resource: st.resource,
			folder:   folder,
		}
		p, err := startProcess(s, c.emit)
		if err != nil {
			return fmt.Errorf("start %s: %w", s.name, err)
		}
		c.members = append(c.members, p)
	}
	return nil
}

func (c *crew) emit(r report) {
	select {
	case c.reports <- r:
	case <-c.quit: // the scenario is over, and the report with it
	}
}

// Next returns what is reported next.
func (c *crew) Next(ctx context.Context) (report, error) {
	select {
	case r := <-c.reports:
		return r, nil
	case <-ctx.Done():
		return report{}, context.Cause(ctx)
	}
}

// Close kills those that still run and waits until all have ended.
func (c *crew) Close() {
	close(c.quit)
	for _, p := range c.members {
		p.Kill()
	}
}
