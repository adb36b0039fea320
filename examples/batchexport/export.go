//go:build unix

package main

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// file is one day's file, complete on disk. It counts only once it is published.
type file struct {
	day    time.Time
	name   string
	rows   int
	sha256 string
}

// export writes a day's file and publishes it. The file's name carries the
// token: two holders never write to the same file, and which one counts the
// database decides.
func (r *replica) export(ctx, held context.Context, lease *fencing.Lease, day time.Time) error {
	records, err := r.earthquakesOf(held, day)
	if err != nil {
		return err
	}
	f := file{
		day:  day,
		name: fmt.Sprintf("%s.token-%d.csv", day.Format(dayLayout), lease.Token()),
		rows: len(records),
	}
	path := filepath.Join(r.folder, f.name)
	if f.sha256, err = r.write(ctx, path, day, records); err != nil {
		return errors.Join(err, os.Remove(path))
	}

	// Not held but ctx, on purpose: this holder is made to be one that has not
	// noticed its loss yet, as any holder may be for a moment. The fence must
	// hold without its cooperation.
	err = r.publish(ctx, lease, f)
	e := event{Kind: published, Token: lease.Token(), Day: day.Format(dayLayout), Rows: f.rows}
	if stale, ok := errors.AsType[*fencing.StaleError](err); ok {
		e.Kind, e.Stale, e.Current = refused, stale.Token, stale.Current
		err = errors.Join(err, os.Remove(path))
	}
	if err == nil || e.Kind == refused {
		r.link.Report(e)
	}
	return err
}

// publish records the file, in a transaction that the database lets through
// only with the current token.
func (r *replica) publish(ctx context.Context, lease *fencing.Lease, f file) error {
	return lease.InTx(ctx, r.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, publishSQL, f.day, f.name, f.rows, f.sha256, int64(lease.Token()), r.name)
		return err
	})
}

// earthquakesOf returns the records of a day as they are in the file.
func (r *replica) earthquakesOf(ctx context.Context, day time.Time) ([][]string, error) {
	rows, err := r.pool.Query(ctx, earthquakesOfSQL, day)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
		var at time.Time
		record := make([]string, len(columns))
		err := row.Scan(&record[0], &at, &record[2], &record[3], &record[4], &record[5], &record[6], &record[7])
		record[1] = at.UTC().Format(timeLayout)
		return record, err
	})
}

// write writes the records to a new file, with a pause in the middle, and
// returns their hash when the file is on the disk.
func (r *replica) write(ctx context.Context, path string, day time.Time, records [][]string) (hash string, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	w := csv.NewWriter(io.MultiWriter(f, sum))

	middle := len(records) / 2
	if err := w.WriteAll(slices.Insert(records[:middle:middle], 0, columns)); err != nil {
		return "", err
	}
	r.link.Report(event{Kind: half, Day: day.Format(dayLayout)})
	if err := r.link.Await(ctx); err != nil {
		return "", err
	}
	if err := w.WriteAll(records[middle:]); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(f.Sync(), syncFolder(r.folder))
}

// syncFolder makes the file's name durable too.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
