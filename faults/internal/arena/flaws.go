//go:build unix

package arena

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
)

// A Flaw is what the server's part of fencing does wrong on purpose, so that it
// can be seen that the checker finds it.
type Flaw string

// The flaws.
const (
	NoFlaw Flaw = ""
	// PlainCheck reads the mark without a lock: it can be raised between the
	// check of a write and its commit.
	PlainCheck Flaw = "plain-check"
	// LateMark raises the mark with the first write of a new holder instead of
	// when it gets the lock.
	LateMark Flaw = "late-mark"
	// EarlyToken takes a token that was drawn before the lock was asked for.
	EarlyToken Flaw = "early-token"
	// AsyncCommit acknowledges a commit before it is durable.
	AsyncCommit Flaw = "async-commit"
)

// asyncSQL also keeps the server from writing soon by itself.
var asyncSQL = []string{
	`ALTER SYSTEM SET synchronous_commit = off`,
	`ALTER SYSTEM SET wal_writer_delay = '10s'`,
	`SELECT pg_reload_conf()`,
}

// edit is a change to the text of a function.
type edit struct {
	function string
	find     *regexp.Regexp
	replace  string
}

// flaws are as small as can be, so that what is left is the real thing.
var flaws = map[Flaw][]edit{
	PlainCheck: {
		{"fencing.check_statement()", regexp.MustCompile(` FOR SHARE;`), `;`},
	},
	LateMark: {
		{"fencing.issue(text)", regexp.MustCompile(`(?s)INSERT INTO fencing\.resource.*?INTO token;`), `NULL;`},
	},
	EarlyToken: {
		{"fencing.issue(text)", regexp.MustCompile(`nextval\('fencing\.token'\)`), `current_setting('faults.token')::bigint`},
		{"fencing.issue(text)", regexp.MustCompile(`greatest\(excluded\.mark, r\.mark \+ 1\)`), `excluded.mark`},
	},
}

// lateMarkSQL is a trigger that fires before the guard, and raises the mark.
const lateMarkSQL = `CREATE FUNCTION late_mark() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO fencing.resource AS r (name, mark)
		VALUES (tg_argv[0], (current_setting('fencing.stamps')::jsonb ->> tg_argv[0])::bigint)
		ON CONFLICT (name) DO UPDATE SET mark = excluded.mark WHERE r.mark < excluded.mark;
		RETURN NULL;
	END $$`

// Break puts a flaw into the functions of the server.
func (a *Arena) Break(ctx context.Context, flaw Flaw) error {
	if flaw == NoFlaw {
		return nil
	}
	edits := flaws[flaw]
	if edits == nil && flaw != AsyncCommit {
		return fmt.Errorf("no flaw %q", flaw)
	}
	return a.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for _, e := range edits {
			if err := e.apply(ctx, conn); err != nil {
				return err
			}
		}
		switch flaw {
		case LateMark:
			return a.markLate(ctx, conn)
		case AsyncCommit:
			for _, sql := range asyncSQL {
				if _, err := conn.Exec(ctx, sql); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// apply fails when the function does not have what is to be replaced: then the
// flaw would be none.
func (e edit) apply(ctx context.Context, conn *pgx.Conn) error {
	var text string
	if err := conn.QueryRow(ctx, `SELECT pg_get_functiondef($1::text::regprocedure)`, e.function).Scan(&text); err != nil {
		return err
	}
	if found := len(e.find.FindAllString(text, -1)); found != 1 {
		return fmt.Errorf("%s has %q %d times and not once: the flaw has to be written anew", e.function, e.find, found)
	}
	_, err := conn.Exec(ctx, e.find.ReplaceAllLiteralString(text, e.replace))
	return err
}

func (a *Arena) markLate(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, lateMarkSQL); err != nil {
		return err
	}
	for _, key := range a.keys {
		for _, table := range []string{"register", "journal"} {
			if _, err := conn.Exec(ctx, fmt.Sprintf(
				`CREATE TRIGGER a_late_mark BEFORE INSERT OR UPDATE ON %s_%s FOR EACH STATEMENT EXECUTE FUNCTION late_mark('%[2]s')`,
				table, key)); err != nil {
				return err
			}
		}
	}
	return nil
}
