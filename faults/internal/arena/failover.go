//go:build unix

package arena

import (
	"context"
	"fmt"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Follow starts a standby, unless there is one, and waits until it has caught up.
func (a *Arena) Follow(ctx context.Context) error {
	if a.standby == nil {
		standby, err := pgtest.LaunchStandby(ctx, a.primary, settings...)
		if err != nil {
			return err
		}
		a.standby = standby
	}
	return a.standby.CatchUp(ctx)
}

// Switch has the standby take over without any loss: the primary ends in good
// order, which sends all to the standby.
func (a *Arena) Switch(ctx context.Context) error {
	if err := a.Follow(ctx); err != nil {
		return err
	}
	if err := a.primary.Server.Shutdown(pgtest.Fast); err != nil {
		return err
	}
	return a.promote(ctx)
}

// FailOver has the standby take over from a primary that crashes, without what
// was committed since the time that it returns. What was committed up to then is
// on the standby. meanwhile is called between the two.
func (a *Arena) FailOver(ctx context.Context, meanwhile func()) (safe history.Time, err error) {
	if err := a.Follow(ctx); err != nil {
		return 0, err
	}
	safe = history.Now()
	if err := a.standby.CatchUp(ctx); err != nil {
		return 0, err
	}
	if err := a.standby.Cut(ctx); err != nil {
		return 0, err
	}
	meanwhile()
	if err := a.primary.Server.Shutdown(pgtest.Immediate); err != nil {
		return 0, err
	}
	return safe, a.promote(ctx)
}

// promote makes the standby the primary. The old one is gone: two at once are
// more than locks of one server can rule out.
func (a *Arena) promote(ctx context.Context) error {
	if err := a.standby.Promote(ctx); err != nil {
		return err
	}
	if err := a.close(); err != nil {
		return fmt.Errorf("the old primary: %w", err)
	}
	a.mu.Lock()
	a.primary, a.close = a.standby.Database, a.standby.Close
	a.mu.Unlock()
	a.standby = nil
	return nil
}
