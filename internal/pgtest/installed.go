package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/freeport"
)

const (
	// startLimit bounds the start of one server, initdb included.
	startLimit = 2 * time.Minute
	// portAttempts bounds how often another port is tried. The port is free
	// when it is chosen, so that losing even one race for it is rare.
	portAttempts = 5
)

// errPortTaken reports that somebody else took the chosen port first.
var errPortTaken = errors.New("port taken")

// startInstalled starts a server from binaries found on this machine, on a data
// directory of its own.
func startInstalled(ctx context.Context) (*backend, error) {
	bin, err := findBinDir(ctx)
	if err != nil {
		return nil, err
	}
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	return serve(ctx, bin, as, source{}, password())
}

// A source is what a standby is made from, and the settings of its own.
type source struct {
	conninfo string // of another server, without the password; "" for a new server
	settings []string
}

// serve runs one server until its watchdog ends.
func serve(ctx context.Context, bin binDir, as *account, from source, password string) (*backend, error) {
	for attempt := 1; ; attempt++ {
		b, err := serveOnce(ctx, bin, as, from, password)
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return b, err
		}
	}
}

// serveOnce is serve on one port, which may be taken.
func serveOnce(ctx context.Context, bin binDir, as *account, from source, password string) (*backend, error) {
	port, err := freeport.Next()
	if err != nil {
		return nil, err
	}
	dir := newFolderName()
	var leave, find string
	if from.conninfo == "" {
		leave, find = seeds.seedOf(bin, dir)
	}
	args := append([]string{dir, bin.path, from.conninfo, leave, find},
		"-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=",
		"-c", "logging_collector=off")
	for _, setting := range serverSettings {
		args = append(args, "-c", setting.name+"="+setting.value)
	}
	for _, setting := range from.settings {
		args = append(args, "-c", setting)
	}

	w, err := startWatchdog(serveScript, as, args...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", bin.path, err)
	}
	dsn := localDSN(port, password)
	if err := errors.Join(w.Tell(password), waitReady(ctx, dsn, w)); err != nil {
		if strings.Contains(err.Error(), "could not bind") {
			err = errPortTaken
		}
		// Its error would only repeat the one at hand.
		_ = w.Close()
		return nil, fmt.Errorf("start %s: %w", bin.path, err)
	}
	return &backend{
		dsn:    dsn,
		detail: bin.path,
		dir:    dir,
		log:    func(context.Context) (string, error) { return readFile(filepath.Join(dir, "log")) },
		stop:   w.Close,
		order:  w.Tell,
		ended:  w.EndsWithin,
	}, nil
}

// waitReady returns when the server at dsn lets its superuser in, or with the
// reason for which it never will. The random password also keeps it from taking
// somebody else's server on the same port for ours.
func waitReady(ctx context.Context, dsn string, w *watchdog) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-w.Done():
			return w.Cause()
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// localDSN is the superuser's URL of a server on this machine.
func localDSN(port int, password string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func readFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	return string(text), err
}
