package pgtest

import "errors"

var (
	// ErrNoServer is returned by [Start] when no provider has a server to
	// offer; the error says why for each. Test with errors.Is.
	ErrNoServer = errors.New("pgtest: no PostgreSQL for the tests")

	// ErrUnknownProvider is returned by [Start] when PGADVISORY_TEST_PROVIDER
	// is not the name of a provider. Test with errors.Is.
	ErrUnknownProvider = errors.New("pgtest: unknown provider")

	// ErrNoLog is returned by [Server.Log] for a server given by DATABASE_URL,
	// whose log can't be read through a connection. Test with errors.Is.
	ErrNoLog = errors.New("pgtest: log of a given server can't be read")
)
