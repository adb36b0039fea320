//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// check is one claim about the result, and why it is wrong.
type check struct {
	claim string
	err   error
}

// publication is one row of exports.
type publication struct {
	Day     time.Time
	File    string
	Rows    int
	SHA256  string
	Token   fencing.Token
	Replica string
}

// verifier goes by the database and the files. Only what leaves no trace there,
// such as a refusal, it takes from the story.
type verifier struct {
	stage     *stage
	folder    string
	source    *source
	story     *story
	published []publication
}

// verify checks all claims, also when some of them are wrong.
func verify(ctx context.Context, st *stage, folder string, src *source, s *story) []check {
	v := &verifier{stage: st, folder: folder, source: src, story: s}
	rows, err := st.pool.Query(ctx, exportsSQL)
	if err == nil {
		v.published, err = pgx.CollectRows(rows, pgx.RowToStructByPos[publication])
	}
	if err != nil {
		return []check{{"the exports can be read", err}}
	}
	return []check{
		{fmt.Sprintf("each of the %d days is published, and was once", len(src.days)), v.days()},
		{fmt.Sprintf("each of the %d earthquakes is in one published file, once and as it was", len(src.records)), v.earthquakes()},
		{"each published file has the recorded number of rows and SHA-256", v.hashes()},
		{"no other file is left", v.leftovers()},
		{"each holder's token is above the one before", v.tokens()},
		{fmt.Sprintf("before %s all has the first token, from then on the next one", s.frozenDay), v.turns()},
		{"the one stale write was refused, and the refusal names both tokens", v.refusal(ctx)},
		{"its writer learned that its lock was lost", v.loss()},
		{"the lock is free", v.lock(ctx)},
	}
}

// tokens: those of the grants grow.
func (v *verifier) tokens() error {
	for i, g := range v.story.grants[1:] {
		if before := v.story.grants[i]; g.token <= before.token {
			return fmt.Errorf("%s got %d after %s had got %d", g.holder.name, g.token, before.holder.name, before.token)
		}
	}
	if n := len(v.story.grants); n != replicas {
		return fmt.Errorf("the lock was granted %d times to %d replicas", n, replicas)
	}
	return nil
}

// turns: the work passed from the first holder to the second where the first
// was frozen.
func (v *verifier) turns() error {
	var errs []error
	for _, p := range v.published {
		day, g := p.Day.Format(dayLayout), v.story.grants[0]
		if day >= v.story.frozenDay {
			g = v.story.grants[1]
		}
		if p.Token != g.token || p.Replica != g.holder.name {
			errs = append(errs, fmt.Errorf("%s is by %s with token %d, and not by %s with token %d",
				day, p.Replica, p.Token, g.holder.name, g.token))
		}
	}
	return errors.Join(errs...)
}

// refusal: exactly the frozen holder's write, by the mark that the database has.
func (v *verifier) refusal(ctx context.Context) error {
	var current fencing.Token
	if err := v.stage.pool.QueryRow(ctx, currentTokenSQL, v.stage.resource).Scan(&current); err != nil {
		return err
	}
	if n := len(v.story.refusals); n != 1 {
		return fmt.Errorf("%d writes were refused", n)
	}
	r, first := v.story.refusals[0], v.story.grants[0]
	if r.from != first.holder || r.Day != v.story.frozenDay || r.Stale != first.token || r.Current != current {
		return fmt.Errorf("%s with token %d was refused for %s, naming token %d while %d is current",
			r.from.name, r.Stale, r.Day, r.Current, current)
	}
	return nil
}

// loss: the frozen holder's, and nobody else's.
func (v *verifier) loss() error {
	if n := len(v.story.losses); n != 1 {
		return fmt.Errorf("%d locks were lost", n)
	}
	if from := v.story.losses[0].from; from != v.story.frozen {
		return fmt.Errorf("it was %s that lost the lock", from.name)
	}
	return nil
}

// lock: nobody holds it or waits for it.
func (v *verifier) lock(ctx context.Context) error {
	var n int
	if err := v.stage.pool.QueryRow(ctx, locksSQL, v.stage.resource).Scan(&n); err != nil {
		return err
	}
	if n > 0 {
		return fmt.Errorf("pg_locks has %d entries of it", n)
	}
	return nil
}
