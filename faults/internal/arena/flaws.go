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
	// PlainCheck checks a write without the lock that keeps the mark from being
	// raised until the commit.
	PlainCheck Flaw = "plain-check"
	// SnapshotCheck reads the mark without FOR SHARE: a transaction in repeatable
	// read sees that of when it began.
	SnapshotCheck Flaw = "snapshot-check"
	// LateMark raises the mark with the first write of a new holder instead of
	// when it gets the lock.
	LateMark Flaw = "late-mark"
	// EarlyToken takes a token that was drawn before the lock was asked for.
	EarlyToken Flaw = "early-token"
	// Unpromoted takes the tokens of before a promotion for what they were then.
	Unpromoted Flaw = "unpromoted"
	// AsyncCommit acknowledges a commit before it is durable.
	AsyncCommit Flaw = "async-commit"
	// PlainDraw draws a token for the holder of a lock in Redis whatever the mark is.
	PlainDraw Flaw = "plain-draw"
)

// asyncSQL also keeps the server from writing soon by itself.
var asyncSQL = []string{
	`ALTER SYSTEM SET synchronous_commit = off`,
	`ALTER SYSTEM SET wal_writer_delay = '10s'`,
	`SELECT pg_reload_conf()`,
}

const (
	checkFunction     = "fencing.check_write(text, text, name, name)"
	statementFunction = "fencing.check_statement()"
	rowsFunction      = "fencing.check_values(text[], text, text, text, name, name)"
	shareFunction     = "fencing.share_writing(text[])"
	currentFunction   = "fencing.is_current(text)"
	issueFunction     = "fencing.issue(text)"
	afterFunction     = "fencing.issue_after(text, bigint)"
)

// edit is a change to the text of a function.
type edit struct {
	function string
	find     *regexp.Regexp
	replace  string
}

// flaws are as small as can be, so that what is left is the real thing.
var flaws = map[Flaw][]edit{
	PlainCheck: {
		{shareFunction, regexp.MustCompile(`(?s)PERFORM pg_advisory_xact_lock_shared\(.*?;`), `NULL;`},
		{statementFunction, regexp.MustCompile(`pg_advisory_xact_lock_shared\(.*\) IS NULL;`), `NULL;`},
		{currentFunction, regexp.MustCompile(`pg_advisory_xact_lock_shared\(.*\) IS NULL;`), `NULL;`},
	},
	SnapshotCheck: {
		{checkFunction, regexp.MustCompile(` FOR SHARE;`), `;`},
	},
	Unpromoted: {
		{checkFunction, regexp.MustCompile(`token = last\.mark AND last\.epoch = now_epoch`), `token = last.mark`},
		{statementFunction, regexp.MustCompile(`AND r\.epoch = fencing\.chosen_epoch\(\)`), ``},
		{currentFunction, regexp.MustCompile(`AND r\.epoch = fencing\.chosen_epoch\(\)`), ``},
		{rowsFunction, regexp.MustCompile(`AND r\.epoch = fencing\.chosen_epoch\(\)`), ``},
	},
	LateMark: {
		{issueFunction, regexp.MustCompile(`(?s)number := nextval.*?END LOOP;`), `token := nextval('fencing.token');`},
	},
	PlainDraw: {
		{afterFunction, regexp.MustCompile(`seen <> coalesce\(`), `false AND seen <> coalesce(`},
	},
	EarlyToken: {
		{issueFunction, regexp.MustCompile(`nextval\('fencing\.token'\)`), `current_setting('faults.token')::bigint`},
		{issueFunction, regexp.MustCompile(`WHEN number > r\.mark THEN`), `WHEN true THEN`},
	},
}

// The triggers fire before the guards, and raise the mark.
const (
	lateMarkSQL = `CREATE FUNCTION late_mark() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			resource text;
		BEGIN
			IF tg_nargs = 1 THEN resource := tg_argv[0]; ELSE resource := new.key; END IF;
			PERFORM pg_advisory_xact_lock(hashtextextended(resource, 2));
			UPDATE fencing.resource r SET mark = fencing.stamped(resource), epoch = fencing.epoch()
			WHERE r.name = resource AND r.mark < fencing.stamped(resource);
			INSERT INTO fencing.resource (name, mark, epoch) SELECT resource, fencing.stamped(resource), fencing.epoch()
			WHERE NOT EXISTS (SELECT FROM fencing.resource r WHERE r.name = resource);
			RETURN new;
		END $$;
		CREATE TRIGGER a_late_mark BEFORE INSERT ON journal FOR EACH ROW EXECUTE FUNCTION late_mark()`

	lateMarkOfSQL = `CREATE TRIGGER a_late_mark BEFORE UPDATE ON register_%[1]s FOR EACH STATEMENT EXECUTE FUNCTION late_mark('%[1]s')`
)

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
		default:
			// the edits are all of it
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
		if _, err := conn.Exec(ctx, fmt.Sprintf(lateMarkOfSQL, key)); err != nil {
			return err
		}
	}
	return nil
}
