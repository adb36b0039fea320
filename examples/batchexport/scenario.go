//go:build unix

package main

import (
	"context"
	"fmt"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// scenario directs the replicas. No step of it waits for time to pass, only for
// what a replica reports: each pauses in the middle of each day until it is
// told to go on.
type scenario struct {
	tl    *timeline
	stage *stage
	crew  *crew
	story *story
}

// story is what happened, for the verification.
type story struct {
	frozenDay   string
	frozen      *process
	grants      []grant
	publication map[string][]fencing.Token // by day, in order
	refusals    []report
	losses      []report

	finished map[*process]bool // has said that it is done
	running  int
}

// grant is one holding of the lock.
type grant struct {
	holder  *process
	token   fencing.Token
	backend uint32
}

// play freezes the first holder in the middle of frozenDay, terminates its
// backend, has the others finish the work and wakes it.
func play(ctx context.Context, tl *timeline, st *stage, c *crew, frozenDay string) (*story, error) {
	s := &scenario{tl: tl, stage: st, crew: c, story: &story{
		frozenDay:   frozenDay,
		publication: map[string][]fencing.Token{},
		finished:    map[*process]bool{},
		running:     len(c.members),
	}}
	err := s.until(ctx, func(r report) bool { return r.Kind == half && r.Day == frozenDay })
	if err != nil {
		return nil, err
	}
	first := s.story.grants[0]
	if err := s.freeze(ctx, first); err != nil {
		return nil, err
	}
	if err := s.until(ctx, func(report) bool { return s.story.running == 1 }); err != nil {
		return nil, err
	}
	if err := s.wake(first); err != nil {
		return nil, err
	}
	if err := s.until(ctx, func(report) bool { return s.story.running == 0 }); err != nil {
		return nil, err
	}
	return s.story, nil
}

// freeze stops the holder and ends the session that its lock is on. A server
// comes to that by itself, through a failover, idle_session_timeout or, when
// the client's whole machine is frozen, TCP keepalives; here it is only sooner.
func (s *scenario) freeze(ctx context.Context, g grant) error {
	s.story.frozen = g.holder
	if err := g.holder.Freeze(); err != nil {
		return err
	}
	s.tl.Main("froze %s in the middle of %s (SIGSTOP)", g.holder.name, s.story.frozenDay)
	var gone bool
	if err := s.stage.pool.QueryRow(ctx, terminateSQL, int32(g.backend)).Scan(&gone); err != nil {
		return err
	}
	if !gone {
		return fmt.Errorf("backend %d does not end", g.backend)
	}
	s.tl.Main("terminated the session of its lock, backend %d", g.backend)
	return nil
}

func (s *scenario) wake(g grant) error {
	if err := g.holder.Wake(); err != nil {
		return err
	}
	s.tl.Main("woke %s (SIGCONT), which goes on as if nothing happened", g.holder.name)
	return g.holder.Resume()
}

// until takes reports up to the first that is the last one, and lets those go
// on that wait in the middle of a day before it.
func (s *scenario) until(ctx context.Context, last func(report) bool) error {
	for {
		r, err := s.crew.Next(ctx)
		if err != nil {
			return err
		}
		s.tl.Replica(r)
		if err := s.story.add(r); err != nil {
			return err
		}
		if last(r) {
			return nil
		}
		if r.Kind == half {
			if err := r.from.Resume(); err != nil {
				return fmt.Errorf("tell %s to go on: %w", r.from.name, err)
			}
		}
	}
}

// add notes one report.
func (s *story) add(r report) error {
	switch r.Kind {
	case asks, half:
	case holds:
		s.grants = append(s.grants, grant{r.from, r.Token, r.Backend})
	case published:
		s.publication[r.Day] = append(s.publication[r.Day], r.Token)
	case refused:
		s.refusals = append(s.refusals, r)
	case lost:
		s.losses = append(s.losses, r)
	case done:
		s.finished[r.from] = true
	case failed:
		return fmt.Errorf("%s failed: %s", r.from.name, r.Text)
	case exited:
		s.running--
		if !s.finished[r.from] || r.Text != "" {
			return fmt.Errorf("%s ended too early: %s", r.from.name, r.Text)
		}
	default:
		return fmt.Errorf("%s reports an unknown event %q", r.from.name, r.Kind)
	}
	return nil
}
