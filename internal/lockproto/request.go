package lockproto

import (
	"github.com/pgadvisory/pgadvisory/internal/grant"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// Request is what a session is asked for. With neither targets nor slots it is asked for
// its settings alone.
type Request struct {
	Targets []lockid.Target // in order, each once
	Name    string          // of the locks, for the application_name
	Issue   grant.Issue     // what the grant must do besides
	Slots   *Slots          // of a semaphore; Targets are not asked for then
}

// Slots are those of a semaphore.
type Slots struct {
	IDs          []int64
	Announcement int64 // a lock that all holders share and that tells the limit
}
