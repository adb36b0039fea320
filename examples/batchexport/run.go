//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const (
	// serverLimit bounds the start of a server, which may be downloaded.
	serverLimit = 5 * time.Minute
	// runLimit bounds all between the server's start and the tidying up.
	runLimit = 45 * time.Second
)

// run is the whole program. Whatever it made it has removed when it returns, or
// its error says what is left.
func run(ctx context.Context, o options, tl *timeline) (err error) {
	tl.Main("looking for a PostgreSQL server")
	server, err := startServer(ctx)
	if err != nil {
		return whyEnded(ctx, err)
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	tl.Main("PostgreSQL %s, %s", versionText(server.Version()), providerText(server.Provider()))

	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, fmt.Errorf("not finished within %v", runLimit))
	defer cancel()
	folder, err := newFolder(o.keep)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	st, err := newStage(ctx, server.DSN())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.TearDown(ctx)) }()
	return whyEnded(ctx, perform(ctx, o, tl, st, folder.path))
}

// perform sets the stage, lets the replicas play and checks the result. No
// replica runs any more when it returns.
func perform(ctx context.Context, o options, tl *timeline, st *stage, folder string) error {
	source, err := readSource()
	if err != nil {
		return err
	}
	if err := st.SetUp(ctx, o.unguarded); err != nil {
		return err
	}
	tl.Main("loaded %d earthquakes of %d days into schema %s", len(source.records), len(source.days), st.schema)
	if o.unguarded {
		tl.Main("left the exports unguarded")
	} else {
		tl.Main("guarded the exports for resource %q", st.resource)
	}

	crew := newCrew()
	defer crew.Close()
	if err := crew.Start(st, folder); err != nil {
		return err
	}
	story, err := play(ctx, tl, st, crew, source.days[2])
	if err != nil {
		return err
	}
	return tl.Verdict(verify(ctx, st, folder, source, story))
}

// whyEnded puts the cause of ctx's end, such as a signal, in the place of the
// errors that it led to.
func whyEnded(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

func startServer(ctx context.Context) (*pgtest.Server, error) {
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	return pgtest.Start(ctx, io.Discard)
}

func versionText(num int) string { return fmt.Sprintf("%d.%d", num/10000, num%10000) }

func providerText(provider string) string {
	switch provider {
	case "url":
		return "given by DATABASE_URL"
	case "docker":
		return "in a container of its own"
	case "embedded":
		return "downloaded for this run"
	default:
		return "started for this run"
	}
}
