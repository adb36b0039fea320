package pgtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// envURL names the server that somebody else runs.
	envURL = "DATABASE_URL"
	// givenProvider is the provider of that server.
	givenProvider = "url"
)

// givenLimit bounds the first connection to the server.
const givenLimit = 30 * time.Second

// useGiven takes the server that DATABASE_URL names, and never stops it.
func useGiven(ctx context.Context) (*backend, error) {
	given := os.Getenv(envURL)
	if given == "" {
		return nil, errors.New(envURL + " is not set")
	}
	dsn, err := urlDSN(given)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envURL, err)
	}
	if dsn, err = settleTLS(ctx, dsn); err != nil {
		return nil, fmt.Errorf("%s: %w", envURL, err)
	}
	return &backend{
		dsn:    dsn,
		detail: envURL,
		log:    func(context.Context) (string, error) { return "", ErrNoLog },
		stop:   func() error { return nil },
	}, nil
}

// settleTLS returns the URL dsn with the sslmode that it comes to. Without one,
// and with prefer and allow, a client tries two ways, and what a test puts in
// between, a proxy for one, has only the first.
func settleTLS(ctx context.Context, dsn string) (string, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return "", err
	}
	twoWays := false
	for _, other := range config.Fallbacks {
		twoWays = twoWays || other.Host == config.Host && other.Port == config.Port
	}
	if !twoWays {
		return dsn, nil
	}
	mode := "disable"
	ctx, cancel := context.WithTimeout(ctx, givenLimit)
	defer cancel()
	err = withConn(ctx, dsn, func(conn *pgx.Conn) error {
		if _, isTLS := conn.PgConn().Conn().(*tls.Conn); isTLS {
			mode = "require"
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return withParameter(dsn, "sslmode", mode)
}
