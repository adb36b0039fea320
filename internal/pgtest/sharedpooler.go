package pgtest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// BehindPgBouncer returns a copy of d that is reached through a PgBouncer in
// session mode. Tests on the shared server share one PgBouncer, which ends with
// the process; it lets in the server's users with their own passwords, and
// refuses startup parameters that it could not pass on. t is skipped where
// PgBouncer is not installed.
func (d *Database) BehindPgBouncer(t testing.TB) *Database {
	t.Helper()
	behind := *d
	if server, err := shared.get(); err != nil || d.Server != server {
		behind.DSN = d.PgBouncer(t, "session", "default_pool_size = 60")
		return &behind
	}
	if _, err := findPgBouncer(); err != nil {
		t.Skip(err)
	}
	dsn, err := shared.pooler.get(d.Server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	if behind.DSN, err = withDatabase(dsn, d.Name); err != nil {
		t.Fatal(err)
	}
	return &behind
}

// A sharedPooler is started by the first test that needs it.
type sharedPooler struct {
	// mu guards the fields below and is held during start and close.
	mu       sync.Mutex
	started  bool
	dsn      string // of the server's maintenance database
	watchdog *watchdog
	err      error
}

// get starts the pooler at the first call; all calls return the same result.
func (p *sharedPooler) get(serverDSN string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		p.started = true
		p.dsn, p.watchdog, p.err = startSharedPooler(serverDSN)
	}
	if p.err != nil {
		return "", p.err
	}
	select {
	case <-p.watchdog.Done():
		return "", fmt.Errorf("pgtest: PgBouncer has ended: %w", p.watchdog.Cause())
	default:
		return p.dsn, nil
	}
}

// close stops the pooler if there is one.
func (p *sharedPooler) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchdog == nil {
		return nil
	}
	if err := p.watchdog.Close(); err != nil {
		return fmt.Errorf("pgtest: stop PgBouncer: %w", err)
	}
	return nil
}

func startSharedPooler(serverDSN string) (string, *watchdog, error) {
	program, err := findPgBouncer()
	if err != nil {
		return "", nil, err
	}
	server, err := pgx.ParseConfig(serverDSN)
	if err != nil {
		return "", nil, err
	}
	// Not a test's context: the pooler is not that test's.
	ctx, cancel := context.WithTimeout(context.Background(), sharedLimit)
	defer cancel()
	return startPgBouncer(ctx, program, server, func(port int) pgbouncerFiles {
		return pgbouncerFiles{
			config: configForAll(server, port),
			users:  quoteUser(server.User) + " " + quoteUser(server.Password),
		}
	})
}

// configForAll is the pgbouncer.ini for every database and user of a server. Of
// users that it was not told it asks the server.
func configForAll(server *pgx.ConnConfig, port int) string {
	return strings.Join([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d auth_user=%s", quoteSetting(server.Host), server.Port, quoteSetting(server.User)),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(port),
		"unix_socket_dir =",
		"auth_type = md5", // or SCRAM, whichever the server's secret is for
		"auth_file = users",
		"pool_mode = session",
		"default_pool_size = 60",
		"max_client_conn = 1000",
		"server_login_retry = 1",
	}, "\n")
}

// quoteUser makes a name or a password fit for the file of users.
func quoteUser(text string) string { return `"` + strings.ReplaceAll(text, `"`, `""`) + `"` }
