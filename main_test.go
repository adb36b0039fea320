//go:build unix

package pgadvisory_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/childproc"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const (
	dsnVar   = "PGADVISORY_TEST_DSN"
	resource = "nightly-export"
)

func TestMain(m *testing.M) {
	childproc.Main(map[string]childproc.Role{"exporter": exporter, "worker": worker, "migrator": migrator})
	pgtest.Main(m)
}

// exporter is a process that holds the resource and writes when it is told to,
// without looking whether it still holds: what a program does that was stopped
// between the look and the write.
func exporter(ctx context.Context, in *bufio.Scanner, out io.Writer) error {
	pool, err := pgxpool.New(ctx, os.Getenv(dsnVar))
	if err != nil {
		return err
	}
	locker, err := advisory.New(pool, nil)
	if err != nil {
		return err
	}
	fencer, err := fencing.New(locker, nil)
	if err != nil {
		return err
	}
	lease, err := fencer.Lock(ctx, resource)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, lease.Token(), lease.BackendPID())
	for in.Scan() {
		switch day := in.Text(); day {
		case "lost?":
			<-lease.Done()
			fmt.Fprintln(out, errors.Is(lease.Err(), advisory.ErrLost))
		default:
			fmt.Fprintln(out, answer(export(ctx, pool, lease, day)))
		}
	}
	return in.Err()
}

func export(ctx context.Context, pool *pgxpool.Pool, lease *fencing.Lease, day string) error {
	return lease.InTx(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO exports (day, token) VALUES ($1, $2)", day, lease.Token())
		return err
	})
}

func answer(err error) string {
	var stale *fencing.StaleError
	switch {
	case err == nil:
		return "exported"
	case errors.As(err, &stale):
		return fmt.Sprintf("refused: token %d, current %d", stale.Token, stale.Current)
	default:
		return err.Error()
	}
}
