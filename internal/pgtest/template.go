package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// adminLimit bounds one statement that creates or drops a database. It is
// generous, because many may run at once on a small machine.
const adminLimit = time.Minute

// A template is the migrated database that every test's database is cloned
// from. It is made for the first clone.
type template struct {
	name string // unique among all processes that may share the server
	dsn  string // of the maintenance database

	// mu guards the fields below, and is held while the template is being made,
	// so that nobody clones half of it. Clones run without it: the server allows
	// any number of them at a time, as nobody can be connected to the template.
	mu       sync.Mutex
	made     bool
	err      error
	pristine string   // see sqlPristine
	free     []string // databases that are as good as new
}

// clone creates a database with the template's content and returns its name.
func (t *template) clone(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, adminLimit)
	defer cancel()
	if err := t.make(ctx); err != nil {
		return "", fmt.Errorf("pgtest: make the template: %w", err)
	}
	name := uniqueName("test")
	if t.reuse(ctx, name) {
		return name, nil
	}
	if err := t.exec(ctx, fmt.Sprintf(sqlClone, quote(name), quote(t.name))); err != nil {
		return "", fmt.Errorf("pgtest: clone the template: %w", err)
	}
	if err := t.adopt(ctx, name); err != nil {
		return "", errors.Join(fmt.Errorf("pgtest: adopt the clone: %w", err), t.dropDatabase(name))
	}
	return name, nil
}

func (t *template) adopt(ctx context.Context, name string) error {
	dsn, err := withDatabase(t.dsn, name)
	if err != nil {
		return err
	}
	return withConn(ctx, dsn, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sqlAdopt)
		return err
	})
}

// make creates the template unless it exists. The first failure is final: every
// later test would only wait to fail in the same way.
func (t *template) make(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.made || t.err != nil {
		return t.err
	}
	if t.err = t.exec(ctx, fmt.Sprintf(sqlCreateTemplate, quote(t.name))); t.err != nil {
		return t.err
	}
	t.made = true
	if t.err = t.migrate(ctx); t.err != nil {
		return t.err
	}
	t.err = t.exec(ctx, fmt.Sprintf(sqlSealTemplate, quote(t.name)))
	return t.err
}

func (t *template) migrate(ctx context.Context) error {
	dsn, err := withDatabase(t.dsn, t.name)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := migrate(ctx, pool); err != nil {
		return err
	}
	return pool.QueryRow(ctx, sqlPristine).Scan(&t.pristine)
}

// drop removes the template, if it was made, and what was given back.
func (t *template) drop() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.made {
		return nil
	}
	errs := []error{t.dropDatabase(t.name)}
	for _, name := range t.free {
		errs = append(errs, t.dropDatabase(name))
	}
	return errors.Join(errs...)
}

// dropDatabase removes a database and ends the sessions in it.
func (t *template) dropDatabase(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	if err := t.exec(ctx, fmt.Sprintf(sqlDrop, quote(name))); err != nil {
		return fmt.Errorf("pgtest: drop database %s: %w", name, err)
	}
	return nil
}

// exec runs one statement in the maintenance database.
func (t *template) exec(ctx context.Context, sql string) error {
	return withConn(ctx, t.dsn, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// uniqueName returns an identifier that needs no quotes and that no other
// process makes up.
func uniqueName(kind string) string { return "pgtest_" + kind + "_" + strings.ToLower(rand.Text()) }
