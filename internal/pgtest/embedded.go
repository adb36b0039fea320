package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/pgadvisory/pgadvisory/internal/freeport"
)

// startEmbedded downloads a server, unless a former download is in the user's
// cache, and starts it. The library leaves its own log of the start in the
// temporary folder, under a name that it keeps to itself.
func startEmbedded(ctx context.Context) (*backend, error) {
	if os.Geteuid() == 0 {
		return nil, errors.New("can't be started by root, which PostgreSQL refuses to run as")
	}
	port, err := freeport.Next()
	if err != nil {
		return nil, err
	}
	dir := newFolderName()
	w, err := startWatchdog(guardScript, nil, dir)
	if err != nil {
		return nil, err
	}

	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"unix_socket_directories": "",
		// The library keeps standard error to itself.
		"logging_collector": "on",
		"log_directory":     dir,
		"log_filename":      "log",
	}
	for _, setting := range serverSettings {
		settings[setting.name] = setting.value
	}
	password := rand.Text()
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Port(uint32(port)).
		Password(password).
		RuntimePath(filepath.Join(dir, "runtime")).
		DataPath(filepath.Join(dir, "data")).
		Encoding("UTF8").
		Locale("C").
		Logger(io.Discard).
		StartTimeout(startLimit).
		StartParameters(settings))
	if err := startWithin(ctx, server, w); err != nil {
		return nil, err
	}
	return &backend{
		dsn:    localDSN(port, password),
		detail: "embedded-postgres",
		dir:    dir,
		log:    func(context.Context) (string, error) { return readFile(filepath.Join(dir, "log")) },
		stop:   w.Close,
	}, nil
}

// startWithin starts the server, or closes the watchdog. When ctx ends it gives
// up, although the library can't be interrupted.
func startWithin(ctx context.Context, server *embeddedpostgres.EmbeddedPostgres, w *watchdog) error {
	started := make(chan error, 1)
	// Ends with the start; awaited below in either case.
	go func() { started <- server.Start() }()
	select {
	case err := <-started:
		if err != nil {
			return errors.Join(err, w.Close())
		}
		return nil
	case <-ctx.Done():
		// Ends with the start, and so after whatever that still brings up. At
		// the end of the process the watchdog needs no call.
		go func() {
			_ = errors.Join(<-started, w.Close()) // the caller has ctx's error
		}()
		return ctx.Err()
	}
}
