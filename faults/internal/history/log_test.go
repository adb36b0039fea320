//go:build unix

package history_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// clockVar makes this binary a process that only says what its clock says.
const clockVar = "PGADVISORY_FAULTS_CLOCK"

func TestMain(m *testing.M) {
	if os.Getenv(clockVar) != "" {
		os.Stdout.WriteString(strconv.FormatInt(int64(history.Now()), 10))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestNow_isTheSameInAllProcesses(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for range 5 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), clockVar+"=1")
		before := history.Now()
		out, err := cmd.Output()
		require.NoError(t, err)
		there, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		require.NoError(t, err)
		require.Greater(t, history.Time(there), before)
		require.Less(t, history.Time(there), history.Now())
	}
}

func TestLog_canBeReadAgain(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	log := history.NewLog(&file)
	want := []history.Event{
		{Time: 1, Kind: history.LockEnd, Worker: 1, Life: 2, Op: "1.2.3", Key: "a", Token: 7, PID: 8, Outcome: history.OK},
		{Time: 2, Kind: history.Content, Key: "a", Content: &history.Tables{Register: "x", Rows: []history.Row{{ID: 1, Op: "x", Token: 7, Worker: 1, Swap: true}}, Mark: 7}},
		{Time: 3, Kind: history.Promotion, Era: 2, Lossy: true, Safe: 1, Since: 2},
	}
	for _, e := range want {
		log.Add(e)
	}
	got, err := history.Read(&file)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = log.Events()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestLog_saysThatItCouldNotWrite(t *testing.T) {
	t.Parallel()
	log := history.NewLog(brokenWriter{})
	log.Add(history.Event{Kind: history.Born})
	events, err := log.Events()
	require.ErrorIs(t, err, errBroken)
	require.Len(t, events, 1)
}

var errBroken = errors.New("no space")

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestLog_Holder(t *testing.T) {
	t.Parallel()
	log := history.NewLog(&bytes.Buffer{})
	hold := func(op string, worker int) {
		log.Add(history.Event{Kind: history.LockEnd, Worker: worker, Op: op, Key: "a", Outcome: history.OK})
	}
	requireHolder := func(op string) {
		t.Helper()
		e, ok := log.Holder("a")
		require.Equal(t, op != "", ok)
		require.Equal(t, op, e.Op)
	}
	requireHolder("")
	hold("h1", 1)
	requireHolder("h1")
	hold("h2", 2) // took over
	log.Add(history.Event{Kind: history.Done, Worker: 1, Op: "h1", Key: "a"})
	requireHolder("h2")
	log.Add(history.Event{Kind: history.Death, Worker: 2})
	requireHolder("")
	hold("h3", 1)
	log.Add(history.Event{Kind: history.Unlock, Worker: 1, Op: "h3", Key: "a"})
	requireHolder("")
}

func TestLog_Await(t *testing.T) {
	t.Parallel()
	log := history.NewLog(&bytes.Buffer{})
	log.Add(history.Event{Kind: history.Born})
	isRest := func(e history.Event) bool { return e.Kind == history.Rest }
	go log.Add(history.Event{Kind: history.Rest}) // Await waits for it
	require.True(t, log.Await(t.Context(), 0, isRest))
	require.True(t, log.Await(t.Context(), 1, isRest))

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.False(t, log.Await(ctx, log.Len(), isRest), "only what comes from there on")
}
