package pgtest

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Dir is where the server's files are, or "" if they aren't on this machine.
func (s *Server) Dir() string { return s.backend.dir }

// Meets reports whether the server offers what is needed.
func (s *Server) Meets(ctx context.Context, need Need) (bool, error) { return s.meets(ctx, need) }

// Choose runs the choice among providers that do nothing but succeed or fail.
func Choose(forced string, names []string, failures map[string]error) (taken string, notes []string, err error) {
	var candidates []provider
	for _, name := range names {
		candidates = append(candidates, provider{name, func(context.Context) (*backend, error) {
			return &backend{}, failures[name]
		}})
	}
	_, taken, notes, err = choose(context.Background(), forced, candidates)
	return taken, notes, err
}

// FindBinDir returns the folder whose server would be started.
func FindBinDir(ctx context.Context) (string, error) {
	bin, err := findBinDir(ctx)
	return bin.path, err
}

// ClosePool closes a pool as a test's cleanup does, with another limit.
func ClosePool(pool *pgxpool.Pool, limit time.Duration) error { return closePool(pool, limit) }

// StartPgBouncer starts one that only the end of the process ends.
func StartPgBouncer(ctx context.Context, dsn string) (string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	program, err := findPgBouncer()
	if err != nil {
		return "", err
	}
	pooled, _, err := startPgBouncer(ctx, program, config, func(port int) pgbouncerFiles {
		return pgbouncerFiles{config: configForOne(config, config.Database, port, "session", nil)}
	})
	return pooled, err
}

// StartHAProxy starts one that only the end of the process ends.
func StartHAProxy(ctx context.Context, dsn string) (string, error) {
	return startUnowned(ctx, func() (relay, error) { return haproxyRelay(dsn, HAProxy{}) })
}

// StartPgpool starts one that only the end of the process ends.
func StartPgpool(ctx context.Context, dsn string) (string, error) {
	return startUnowned(ctx, func() (relay, error) { return pgpoolRelay("streaming_replication", []string{dsn}, nil) })
}

func startUnowned(ctx context.Context, find func() (relay, error)) (string, error) {
	r, err := find()
	if err != nil {
		return "", err
	}
	dsn, _, err := startRelay(ctx, r)
	return dsn, err
}

// The pure functions.
var (
	LinesOf      = linesOf
	URLDSN       = urlDSN
	WithDatabase = withDatabase
)
