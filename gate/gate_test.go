package gate_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/gate"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const limit = 30 * time.Second

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-time.After(limit):
		require.FailNow(t, "nothing came in time")
		panic("not reached")
	}
}

func open(t *testing.T) (marks *gate.File, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "marks")
	marks, err := gate.OpenFile(path)
	require.NoError(t, err)
	return marks, path
}

func never(context.Context) error { panic("not reached") }

func TestDo_refusesTokensBelowTheHighest(t *testing.T) {
	t.Parallel()
	marks, path := open(t)
	g := gate.New(marks)
	errWork := errors.New("work failed")
	require.Equal(t, errWork, g.Do(t.Context(), "r", 9, func(context.Context) error { return errWork }))
	require.NoError(t, g.Raise(t.Context(), "r", 9))
	require.NoError(t, g.Raise(t.Context(), "r", 10))
	err := g.Do(t.Context(), "r", 9, never)
	require.ErrorIs(t, err, gate.ErrStale)
	var stale *gate.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, gate.StaleError{Resource: "r", Token: 9, Current: 10}, *stale)
	require.NoError(t, g.Raise(t.Context(), "another", 1))
	for _, token := range []int64{0, -1} {
		require.ErrorContains(t, g.Do(t.Context(), "r", token, never), "tokens start at 1")
	}
	again, err := gate.OpenFile(path)
	require.NoError(t, err)
	require.ErrorIs(t, gate.New(again).Do(t.Context(), "r", 9, never), gate.ErrStale, "it was remembered")
}

// A late write that has begun ends before the next holder's begins.
func TestDo_waitsForTheWritesOfALowerToken(t *testing.T) {
	t.Parallel()
	marks, _ := open(t)
	g := gate.New(marks)
	begun, finish, results := make(chan struct{}), make(chan struct{}), make(chan error, 4)
	var late atomic.Bool
	// Each ends with its write; the test waits.
	go func() {
		results <- g.Do(t.Context(), "r", 1, func(context.Context) error {
			close(begun)
			<-finish
			late.Store(true)
			return nil
		})
	}()
	receive(t, begun)
	require.NoError(t, g.Raise(t.Context(), "r", 1), "the same holder's go on at the same time")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, g.Do(ctx, "r", 2, never), context.Canceled)
	next := make(chan error, 1)
	go func() {
		next <- g.Do(t.Context(), "r", 2, func(context.Context) error {
			if !late.Load() {
				return errors.New("the late write runs")
			}
			return nil
		})
	}()
	require.ErrorIs(t, g.Do(t.Context(), "r", 1, never), gate.ErrStale, "none begins any more")
	close(finish)
	require.NoError(t, receive(t, results))
	require.NoError(t, receive(t, next))
}

func TestDo_neverRunsTwoTokensAtOnce(t *testing.T) {
	t.Parallel()
	marks, _ := open(t)
	g := gate.New(marks)
	var highest atomic.Int64
	var work sync.WaitGroup
	for i := range 8 {
		// Ends after its writes; the test waits.
		work.Go(func() {
			for j := range 25 {
				token := int64(1 + i + j)
				err := g.Do(t.Context(), "r", token, func(context.Context) error {
					if previous := highest.Swap(token); previous > token {
						t.Errorf("%d after %d", token, previous)
					}
					return nil
				})
				if err != nil && !errors.Is(err, gate.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
}

func TestOpenFile_refusesWhatIsNoMarks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "marks")
	require.NoError(t, os.WriteFile(path, []byte(`{"r": 1`), 0o600))
	_, err := gate.OpenFile(path)
	require.Error(t, err)
	_, err = gate.OpenFile(t.TempDir())
	require.Error(t, err)
}

// A mark that could not be written lets nobody through, and leaves nothing.
func TestFile_thatCantBeWritten(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "gone")
	marks, err := gate.OpenFile(filepath.Join(folder, "marks"))
	require.NoError(t, err)
	g := gate.New(marks)
	require.Error(t, g.Do(t.Context(), "r", 2, never))
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, g.Raise(t.Context(), "r", 1), "the mark did not rise")
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, files, 1)
}

func TestTable_raisesItsMarks(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	_, err := gate.NewTable(pool, "gate_marks").Raise(t.Context(), "r", 1)
	require.Error(t, err, "no table")
	_, err = pool.Exec(t.Context(), gate.TableSQL)
	require.NoError(t, err)
	marks := gate.NewTable(pool, "gate_marks")
	for _, c := range []struct{ token, want int64 }{{3, 3}, {2, 3}, {3, 3}, {11, 11}, {9, 11}} {
		mark, err := marks.Raise(t.Context(), "r", c.token)
		require.NoError(t, err)
		require.Equal(t, c.want, mark)
	}
	var work sync.WaitGroup
	for i := range 4 {
		// Ends after its tokens; the test waits.
		work.Go(func() {
			for j := range 20 {
				token := int64(20 + i + 4*j)
				if mark, err := marks.Raise(t.Context(), "r", token); err != nil || mark < token {
					t.Error(mark, err)
				}
			}
		})
	}
	work.Wait()
	require.ErrorIs(t, gate.New(marks).Do(t.Context(), "r", 98, never), gate.ErrStale)
}

func TestHandler_answers(t *testing.T) {
	t.Parallel()
	marks, _ := open(t)
	g := gate.New(marks)
	handler := g.Handler(func(r *http.Request) string { return r.URL.Path }, http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	ask := func(token string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/exports", http.NoBody)
		if token != "" {
			r.Header.Set(gate.Header, token)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	require.Equal(t, http.StatusNoContent, ask("7").Code)
	require.Equal(t, http.StatusNoContent, ask("7").Code)
	stale := ask("6")
	require.Equal(t, http.StatusConflict, stale.Code)
	require.Equal(t, "7", stale.Header().Get(gate.Header))
	require.Equal(t, http.StatusPreconditionRequired, ask("").Code)
	for _, token := range []string{"0", "-1", "x", "7.0", "9223372036854775808"} {
		require.Equal(t, http.StatusBadRequest, ask(token).Code, token)
	}
	broken, err := gate.OpenFile(filepath.Join(t.TempDir(), "gone", "marks"))
	require.NoError(t, err)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/exports", http.NoBody)
	r.Header.Set(gate.Header, "1")
	gate.New(broken).Handler(func(*http.Request) string { return "r" }, handler).ServeHTTP(w, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
}
