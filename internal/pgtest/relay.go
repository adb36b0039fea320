package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/freeport"
)

// A relay is a pooler or a proxy that is started in front of a server.
type relay struct {
	name    string
	server  *pgx.ConnConfig // which it leads to
	host    string          // where it listens, 127.0.0.1 if empty
	signal  string          // that ends it
	command []string        // run in a folder of its own
	files   []string        // the names of what is in there
	ports   int             // that it needs; the first, which there always is, is the one to connect to
	content func(ports []int) []string
}

// startRelay returns the URL of the server's database through the relay.
func startRelay(ctx context.Context, r relay) (string, *watchdog, error) {
	for attempt := 1; ; attempt++ {
		dsn, w, err := tryRelay(ctx, r)
		if err == nil {
			return dsn, w, nil
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return "", nil, fmt.Errorf("pgtest: start %s: %w", r.name, err)
		}
	}
}

func tryRelay(ctx context.Context, r relay) (string, *watchdog, error) {
	as, err := serverAccount()
	if err != nil {
		return "", nil, err
	}
	ports := make([]int, max(1, r.ports))
	for i := range ports {
		if ports[i], err = freeport.Next(); err != nil {
			return "", nil, err
		}
	}
	args := append([]string{newFolderName(), r.signal, strings.Join(r.files, " ")}, r.command...)
	w, err := startWatchdog(poolScript, as, args...)
	if err != nil {
		return "", nil, err
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(r.server.User, r.server.Password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])),
		Path:     "/" + r.server.Database,
		RawQuery: "sslmode=disable",
	}
	if r.host != "" {
		u.Host = net.JoinHostPort(r.host, strconv.Itoa(ports[0]))
	}
	err = w.Tell(strings.Join(r.content(ports), "\n.\n") + "\n.")
	if err := errors.Join(err, waitReady(ctx, u.String(), w)); err != nil {
		if strings.Contains(err.Error(), "Address already in use") {
			err = errPortTaken
		}
		// Its error would only repeat the one at hand.
		_ = w.Close()
		return "", nil, err
	}
	return u.String(), w, nil
}

// startFor starts the relay for t, and ends it at cleanup.
func (r relay) startFor(t testing.TB) string {
	t.Helper()
	dsn, w, err := startRelay(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	closeRelay(t, r.name, w)
	return dsn
}

// closeRelay ends a relay with t.
func closeRelay(t testing.TB, name string, w *watchdog) {
	t.Helper()
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("pgtest: stop %s: %v", name, err)
		}
	})
}

// findProgram returns the path of the first of places that there is.
func findProgram(name string, places []string, install string) (string, error) {
	if _, err := newSession(nil); err != nil {
		return "", fmt.Errorf("pgtest: %s %w", name, err)
	}
	for _, place := range places {
		if path, err := exec.LookPath(place); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("pgtest: no %s; install it (%s)", name, install)
}
