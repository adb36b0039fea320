package advisory

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// poolerFindingLife is how long a finding that refuses nobody serves for the
// other connections of a Locker to the same address. The probe opens a connection
// of its own, which a pooler in session mode may have to find a backend for.
const poolerFindingLife = time.Minute

// poolerFinding is what a Locker has found out last of a pooler.
type poolerFinding struct {
	// mu guards the fields below. It is held during a probe: connections that are
	// new at the same time wait for one finding. The probe's bounds are theirs.
	mu      sync.Mutex
	address string
	at      time.Time
	finding pooler.Finding

	wrong atomic.Bool // a heartbeat has found the opposite since
}

// checkPooler is for a connection whose handshake told another process ID than
// its backend, which has pid. It refuses a pooler that is not allowed, and one
// that lends backends.
func (l *Locker) checkPooler(ctx context.Context, hold *connhold.Hold, pid uint32) error {
	finding, err := l.probePooler(ctx, hold, pid)
	switch {
	case err != nil:
		return err
	case finding.Verdict == pooler.Lent && l.config.SessionPooler:
		return fmt.Errorf("%w: %s; the pooler must be in session mode; else connect to the server itself", ErrPooler, finding.Evidence)
	case l.config.SessionPooler:
		return nil
	case finding.Verdict == pooler.Lent:
		return fmt.Errorf("%w: %s, and the handshake told process ID %d; connect to the server itself, "+
			"or to the pooler in session mode and set Config.SessionPooler", ErrPooler, finding.Evidence, hold.PID())
	default:
		return fmt.Errorf("%w: the session's backend is %d and the handshake told process ID %d: a pooler or a proxy is in between; "+
			"connect to the server itself, or set Config.SessionPooler if the pooler is in session mode (%s). "+
			"Neon, Supavisor, PgDog, Pgpool-II and RDS Proxy tell another process ID, or none, even if they keep the session",
			ErrPooler, pid, hold.PID(), finding.Evidence)
	}
}

// probePooler returns a finding, which may be that of another connection to the
// same address.
func (l *Locker) probePooler(ctx context.Context, hold *connhold.Hold, pid uint32) (pooler.Finding, error) {
	known := &l.pooler
	known.mu.Lock()
	defer known.mu.Unlock()
	address := hold.RemoteAddr().String()
	if known.wrong.Swap(false) {
		known.address = ""
	}
	if known.address == address && time.Since(known.at) < poolerFindingLife {
		return known.finding, nil
	}
	finding, err := l.probe(ctx, hold, pid)
	if err != nil {
		return finding, err
	}
	if finding.Verdict != pooler.Lent {
		known.address, known.at, known.finding = address, time.Now(), finding
	}
	if log := l.config.Logger; log != nil && finding.Verdict == pooler.Undecided {
		log.LogAttrs(ctx, slog.LevelWarn, "pooler not checked", slog.String("reason", finding.Evidence))
	}
	return finding, nil
}

// probe runs [pooler.Probe], whose second connection is one as the pool makes it.
func (l *Locker) probe(ctx context.Context, hold *connhold.Hold, pid uint32) (pooler.Finding, error) {
	limit := l.config.HeartbeatTimeout
	var config *pgx.ConnConfig // known once first has run, which it does before the other is made
	first := func(sql string) (row []string, err error) {
		err = hold.Run(ctx, limit, func(ctx context.Context, conn *pgx.Conn) (err error) {
			config = conn.Config()
			row, err = pooler.Ask(ctx, conn.PgConn(), sql)
			return err
		})
		return row, err
	}
	dial := func(ctx context.Context) (*pgconn.PgConn, error) { return pooler.Dial(&config.Config)(ctx) }
	return pooler.Probe(context.WithoutCancel(ctx), pid, first, dial, limit)
}
