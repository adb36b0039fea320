package pgtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

const (
	// envImage names the image to run.
	envImage     = "PGADVISORY_TEST_IMAGE"
	defaultImage = "postgres:18-alpine"

	// dataFolder is where the images keep all data, which are better off in
	// memory here.
	dataFolder = "/var/lib/postgresql"

	// daemonLimit bounds the wait for an answer of the Docker daemon, so that a
	// machine without one gets to the next provider soon.
	daemonLimit = 5 * time.Second
	// imageLimit bounds the start of a container, the download of its image
	// included.
	imageLimit = 3 * time.Minute
)

// startDocker runs a server in a container. Whoever removes the container when
// this process is killed is started before it: testcontainers' own reaper, or,
// where that is disabled, a watchdog.
func startDocker(ctx context.Context) (*backend, error) {
	silence()
	host, err := dockerHost(ctx)
	if err != nil {
		return nil, err
	}
	image := cmp.Or(os.Getenv(envImage), defaultImage)
	name := uniqueName("server")
	unwatch, note, err := watchContainer(host, name)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, imageLimit)
	defer cancel()
	container, err := postgres.Run(ctx, image,
		testcontainers.WithName(name),
		postgres.WithPassword(rand.Text()),
		testcontainers.WithTmpfs(map[string]string{dataFolder: "rw"}),
		testcontainers.WithCmd(serverCommand()...),
		postgres.BasicWaitStrategies(),
	)
	stop := func() error {
		// Killed at once: nothing in it is worth an orderly shutdown.
		return errors.Join(testcontainers.TerminateContainer(container, testcontainers.StopTimeout(0)), unwatch())
	}
	if err != nil {
		err = fmt.Errorf("image %s: %w", image, err)
		return nil, errors.Join(err, stop())
	}
	dsn, err := container.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return &backend{
		dsn:    dsn,
		detail: "image " + image + note,
		log:    func(ctx context.Context) (string, error) { return containerLog(ctx, container) },
		stop:   stop,
	}, nil
}

// Silence keeps testcontainers from printing a banner, for other providers of
// servers.
func Silence() { silence() }

// silence keeps testcontainers from printing a banner of ten lines. Once, since
// the logger is a variable that nothing guards.
var silence = sync.OnceFunc(func() { tclog.SetDefault(tclog.NewNoopLogger()) })

// dockerHost returns the address of the daemon, if it answers.
func dockerHost(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonLimit)
	defer cancel()
	client, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return "", fmt.Errorf("no daemon answers at DOCKER_HOST, the current context or the usual sockets: %w", err)
	}
	return client.DaemonHost(), client.Close()
}

// watchContainer has a container removed after this process has ended. What
// that depends on is in the note.
func watchContainer(host, name string) (unwatch func() error, note string, err error) {
	if !testcontainers.ReadConfig().RyukDisabled {
		return func() error { return nil }, "", nil
	}
	if _, err := exec.LookPath("docker"); err != nil {
		note = ", which nobody removes if this process is killed: the reaper is disabled, and there is no docker command"
		return func() error { return nil }, note, nil
	}
	w, err := startWatchdog(removeScript, nil, host, name)
	if err != nil {
		return nil, "", fmt.Errorf("watch the container: %w", err)
	}
	return w.Close, "", nil
}

// serverCommand is what the container runs.
func serverCommand() []string {
	command := []string{"postgres"}
	for _, setting := range serverSettings {
		command = append(command, "-c", setting.name+"="+setting.value)
	}
	return command
}

func containerLog(ctx context.Context, container testcontainers.Container) (string, error) {
	r, err := container.Logs(ctx)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r)
	return string(text), errors.Join(err, r.Close())
}
