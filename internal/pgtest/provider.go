package pgtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// envProvider forces one provider.
const envProvider = "PGADVISORY_TEST_PROVIDER"

// A backend is a server that a provider has started.
type backend struct {
	dsn    string
	detail string // what was taken, for a human
	dir    string // where its files are, if on this machine
	log    func(context.Context) (string, error)
	stop   func() error
	order  func(string) error       // what serve.sh is told; nil for servers that it doesn't run
	ended  func(time.Duration) bool // whether serve.sh has ended in time; nil as well
}

// A provider is one way to come by a server. When start returns an error, it
// has left nothing behind.
type provider struct {
	name  string
	start func(context.Context) (*backend, error)
}

// providers lists all of them in order of preference.
var providers = []provider{
	{givenProvider, useGiven},
	{"docker", startDocker},
	{"installed", startInstalled},
	{"embedded", startEmbedded},
}

// forcedProvider returns the name of the only provider to try, or "".
//
// A DATABASE_URL is as good as a name: to fall back to another server when the
// given one can't be reached would test something that nobody asked for.
func forcedProvider() string {
	name := os.Getenv(envProvider)
	if name == "" && os.Getenv(envURL) != "" {
		return givenProvider
	}
	return name
}

// choose starts the first of the candidates that can, or only the forced one.
// The notes say what happened to those before it.
func choose(ctx context.Context, forced string, candidates []provider) (b *backend, taken string, notes []string, err error) {
	var names []string
	known := false
	for _, p := range candidates {
		names = append(names, p.name)
		known = known || p.name == forced
	}
	if forced != "" && !known {
		return nil, "", nil, fmt.Errorf("%w %q: %s must be one of %s", ErrUnknownProvider, forced,
			envProvider, strings.Join(names, ", "))
	}

	for _, p := range candidates {
		if forced != "" && p.name != forced {
			continue
		}
		b, err := p.start(ctx)
		if err == nil {
			return b, p.name, notes, nil
		}
		notes = append(notes, p.name+": "+oneLine(err.Error()))
		if ctx.Err() != nil {
			break // the rest would only repeat that
		}
	}
	return nil, "", notes, fmt.Errorf("%w: %s; %s", ErrNoServer, strings.Join(notes, "; "), remedy)
}

// remedy is for whoever has just cloned the repository.
const remedy = "set DATABASE_URL to a server's superuser, or start Docker, or install the PostgreSQL " +
	"server (Debian and Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; " +
	"macOS: brew install postgresql@18)"
