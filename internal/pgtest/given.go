package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
)

const (
	// envURL names the server that somebody else runs.
	envURL = "DATABASE_URL"
	// givenProvider is the provider of that server.
	givenProvider = "url"
)

// useGiven takes the server that DATABASE_URL names, and never stops it.
func useGiven(context.Context) (*backend, error) {
	given := os.Getenv(envURL)
	if given == "" {
		return nil, errors.New(envURL + " is not set")
	}
	dsn, err := urlDSN(given)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envURL, err)
	}
	return &backend{
		dsn:    dsn,
		detail: envURL,
		log:    func(context.Context) (string, error) { return "", ErrNoLog },
		stop:   func() error { return nil },
	}, nil
}
