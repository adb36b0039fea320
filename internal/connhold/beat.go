package connhold

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// beatSQL is an empty statement: the server answers it without a snapshot,
// and the session is idle again at once. The comment names its origin to
// whoever reads pg_stat_activity.
const beatSQL = "-- pgadvisory heartbeat"

// backendBeatSQL is the heartbeat behind a pooler, which could have another
// backend answer it.
const backendBeatSQL = pooler.BackendPIDSQL + " -- pgadvisory heartbeat"

// beat asks the session for a sign of life. A handler that panics does not end it.
func (w *watch) beat() *Loss {
	sql := beatSQL
	if w.limits.Backend != 0 {
		sql = backendBeatSQL
	}
	answer := w.conn.Exec(context.Background(), sql)
	backends, hasPanicked := []string(nil), false
	for {
		err := Protect(func() error {
			for answer.NextResult() {
				for answer.ResultReader().NextRow() {
					backends = append(backends, string(answer.ResultReader().Values()[0]))
				}
			}
			return answer.Close()
		})
		dropNotifications(w.pgx)
		if _, ok := errors.AsType[*PanicError](err); ok {
			hasPanicked = true
			w.tell(err)
			continue
		}
		switch {
		case err != nil:
			// An error is an answer too, for example to a cancel request.
			return LossFrom(err)
		case w.limits.Backend == 0 || hasPanicked && len(backends) == 0: // the handler may have cost the row
			return nil
		case len(backends) != 1:
			return &Loss{OtherBackend, fmt.Errorf("a heartbeat was answered with %d rows", len(backends))}
		case backends[0] != strconv.FormatUint(uint64(w.limits.Backend), 10):
			return &Loss{OtherBackend, fmt.Errorf("backend %s answered a heartbeat, and %d has the session", backends[0], w.limits.Backend)}
		}
		return nil
	}
}
