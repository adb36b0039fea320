//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

const (
	setUpLimit    = 20 * time.Second
	tearDownLimit = 20 * time.Second
)

// installing is held by a run for which fencing was installed, until it is
// removed again: others would see it there, and lose it in the middle.
var installing = advisory.Name("pgadvisory: batchexport installs fencing")

// stage is what a run has in the database: a schema and a resource whose names
// no other run has, so that any number of them can share a server.
type stage struct {
	schema   string
	resource string
	dsn      string
	pool     *pgxpool.Pool
	locker   *advisory.Locker

	installs *advisory.Lock // nil unless fencing was installed for this run
}

// newStage does not change anything in the database yet.
func newStage(ctx context.Context, dsn string) (*stage, error) {
	suffix := strings.ToLower(rand.Text()[:8])
	s := &stage{schema: "batchexport_" + suffix, resource: "batchexport-" + suffix, dsn: dsn}
	var err error
	if s.pool, err = connect(ctx, dsn, s.schema, s.applicationName("main")); err != nil {
		return nil, err
	}
	if s.locker, err = advisory.New(s.pool, nil); err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

// applicationName tells the sessions of this run from all others.
func (s *stage) applicationName(process string) string { return s.schema + " " + process }

// connect is how all processes connect. It does not wait for a connection.
func connect(ctx context.Context, dsn, schema, applicationName string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4
	config.ConnConfig.RuntimeParams["search_path"] = schema
	config.ConnConfig.RuntimeParams["application_name"] = applicationName
	return pgxpool.NewWithConfig(ctx, config)
}

// SetUp makes the tables, loads the earthquakes and guards the exports. A
// signal does not interrupt it: a statement whose end was not waited for could
// have its effect after TearDown.
func (s *stage) SetUp(ctx context.Context, unguarded bool) error {
	turn, err := s.locker.Lock(ctx, installing)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), setUpLimit)
	defer cancel()
	if err := s.install(limited, turn); err != nil {
		return err
	}
	if err := s.createTables(limited); err != nil {
		return err
	}
	if !unguarded {
		if err := fencing.Guard(limited, s.pool, s.schema+".exports", s.resource); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// install installs fencing unless it is there, and keeps its turn if it does.
func (s *stage) install(ctx context.Context, turn *advisory.Lock) error {
	version, err := migrations.Version(ctx, s.pool)
	if err != nil || version > 0 {
		return errors.Join(err, turn.Unlock(ctx))
	}
	s.installs = turn
	return migrations.Up(ctx, s.pool)
}

func (s *stage) createTables(ctx context.Context) error {
	for _, statement := range []string{fmt.Sprintf(createSchemaSQL, s.schema), createEarthquakesSQL, createExportsSQL} {
		if _, err := s.pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("create the tables: %w", err)
		}
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(earthquakesCSV), loadEarthquakesSQL); err != nil {
		return fmt.Errorf("load the earthquakes: %w", err)
	}
	return nil
}

// TearDown removes whatever SetUp made, also if it made only a part of it, and
// closes the pool. The replicas' processes must have ended. It works when ctx
// has ended.
func (s *stage) TearDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tearDownLimit)
	defer cancel()
	defer s.pool.Close()
	err := errors.Join(s.remove(ctx), s.locker.Close(ctx))
	if err != nil {
		return fmt.Errorf("tidy up schema %s: %w", s.schema, err)
	}
	return nil
}

func (s *stage) remove(ctx context.Context) error {
	if err := s.endSessions(ctx); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, fmt.Sprintf(dropSchemaSQL, s.schema)); err != nil {
		return err
	}
	if s.installs != nil {
		return migrations.Down(ctx, s.pool)
	}
	version, err := migrations.Version(ctx, s.pool)
	if err != nil || version == 0 { // not even begun
		return err
	}
	_, err = s.pool.Exec(ctx, forgetResourceSQL, s.resource)
	return err
}

// endSessions ends what is left of the replicas' sessions and waits until they
// are gone: a server notices at its leisure that a process was killed.
func (s *stage) endSessions(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		var left int
		err := s.pool.QueryRow(ctx, endSessionsSQL, s.applicationName("replica")).Scan(&left)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%d sessions of replicas don't end: %w", left, ctx.Err())
		}
	}
}
