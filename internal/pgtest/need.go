package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Need is something that a server given by DATABASE_URL may not offer. Servers
// that this package starts offer all of them.
type Need string

const (
	// PreparedTransactions is a max_prepared_transactions above 0.
	PreparedTransactions Need = "prepared transactions"

	// ReadableLog is that [Database.Log] works.
	ReadableLog Need = "a log that can be read"

	// Passwords is that a wrong password is refused over TCP, and that the right
	// one needs no escapes in a URL or a file of passwords.
	Passwords Need = "a plain password"
)

// own is a server besides the shared one, for tests whose needs that does not
// meet.
var own = sharedServer{start: func(ctx context.Context) (*Server, error) {
	db, err := launch(ctx, source{})
	if err != nil {
		return nil, err
	}
	return db.Server, nil
}}

// NewWith is [New] on a server that meets the needs of t: the shared one if it
// does, and otherwise one that is started from installed binaries. t is skipped
// where there are no binaries either.
func NewWith(t testing.TB, needs ...Need) *Database {
	t.Helper()
	server, err := shared.get()
	if err != nil {
		t.Fatal(err)
	}
	for _, need := range needs {
		meets, err := server.meets(t.Context(), need)
		if err != nil {
			t.Fatal(err)
		}
		if meets {
			continue
		}
		if _, err := findOwnBinDir(t.Context()); err != nil {
			t.Skipf("%s does not offer %s, and %v", envURL, need, err)
		}
		return own.newDatabase(t)
	}
	return shared.newDatabase(t)
}

// meets reports whether a server offers what is needed.
func (s *Server) meets(ctx context.Context, need Need) (bool, error) {
	if s.provider != givenProvider {
		return true, nil
	}
	switch need {
	case PreparedTransactions:
		var most int
		err := withConn(ctx, s.backend.dsn, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, sqlMaxPrepared).Scan(&most)
		})
		return most > 0, err
	case ReadableLog:
		return false, nil
	case Passwords:
		return s.wantsPassword(ctx)
	default:
		return false, fmt.Errorf("pgtest: no such need: %s", need)
	}
}

var plainPassword = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// wantsPassword tries another password than the right one.
func (s *Server) wantsPassword(ctx context.Context) (bool, error) {
	u, err := url.Parse(s.backend.dsn)
	if err != nil {
		return false, errors.New("pgtest: connection URL can't be parsed") // err would show it
	}
	password, _ := u.User.Password()
	if u.Hostname() == "" || u.Port() == "" || !plainPassword.MatchString(password) {
		return false, nil
	}
	u.User = url.UserPassword(u.User.Username(), "not-"+password)
	err = withConn(ctx, u.String(), func(*pgx.Conn) error { return nil })
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) && refusal.Code == "28P01" {
		return true, nil
	}
	return false, err
}
