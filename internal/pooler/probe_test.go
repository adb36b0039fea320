package pooler_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pgadvisory/pgadvisory/internal/pgscript"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is generous: nothing here takes long, but for what is meant to.
const limit = 30 * time.Second

const asksForBackend = "pg_postmaster_start_time()"

func row(pid, start string) *pgscript.Answer {
	return pgscript.Row(pgscript.Text(pid), pgscript.Text(start))
}

// probe plays the first connection, whose backend told 7, and has a scripted
// server for the second one.
func probe(t *testing.T, limit time.Duration, first [][]string, second ...*pgscript.Answer) pooler.Finding {
	t.Helper()
	peer := pgscript.Serve(t, pgscript.On(asksForBackend, second...))
	config, err := pgconn.ParseConfig(peer.DSN())
	require.NoError(t, err)
	asked, dial := 0, pooler.Dial(config)
	var made *pgconn.PgConn
	finding, err := pooler.Probe(t.Context(), 7, func(string) ([]string, error) {
		asked++
		return first[min(asked, len(first))-1], nil
	}, func(ctx context.Context) (conn *pgconn.PgConn, err error) {
		made, err = dial(ctx)
		return made, err
	}, limit)
	require.NoError(t, err)
	if made != nil {
		require.ErrorIs(t, made.Conn().SetDeadline(time.Time{}), net.ErrClosed, "the second connection is closed")
	}
	return finding
}

func TestProbe(t *testing.T) {
	t.Parallel()
	steady := [][]string{{"7", "100"}}
	for name, c := range map[string]struct {
		first    [][]string
		second   []*pgscript.Answer
		verdict  pooler.Verdict
		evidence string
	}{
		"kept":                {steady, []*pgscript.Answer{row("8", "100")}, pooler.Kept, "in 10 rounds one connection kept its backend"},
		"another at once":     {[][]string{{"9", "100"}}, []*pgscript.Answer{row("8", "100")}, pooler.Lent, "on the backends 7 and 9"},
		"the same":            {steady, []*pgscript.Answer{row("7", "100")}, pooler.Lent, "two open connections had the same backend 7"},
		"the same, later":     {steady, []*pgscript.Answer{row("8", "100"), row("8", "100"), row("7", "100")}, pooler.Lent, "the same backend 7"},
		"of another server":   {steady, []*pgscript.Answer{row("7", "200")}, pooler.Kept, ""},
		"moved meanwhile":     {[][]string{{"7", "100"}, {"9", "100"}, {"7", "100"}}, []*pgscript.Answer{row("8", "100")}, pooler.Lent, "on the backends 7 and 9"},
		"moved after it":      {[][]string{{"7", "100"}, {"7", "100"}, {"9", "100"}, {"7", "100"}}, []*pgscript.Answer{row("8", "100")}, pooler.Lent, "on the backends 7 and 9"},
		"to another server":   {[][]string{{"7", "100"}, {"7", "200"}}, []*pgscript.Answer{row("8", "100")}, pooler.Lent, "on the backends 7 and 7"},
		"no transactions":     {steady, []*pgscript.Answer{pgscript.Fatal("08P01", "transaction blocks not allowed in statement pooling mode")}, pooler.Lent, "statement pooling mode"},
		"no backend left":     {steady, []*pgscript.Answer{pgscript.Fatal("08P01", "query_wait_timeout")}, pooler.Undecided, "query_wait_timeout"},
		"the connection ends": {steady, []*pgscript.Answer{row("8", "100"), pgscript.Close()}, pooler.Undecided, "got no backend"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			finding := probe(t, limit, c.first, c.second...)
			require.Equal(t, c.verdict, finding.Verdict, finding.Evidence)
			require.Contains(t, finding.Evidence, c.evidence)
		})
	}
}

func TestProbe_endsASecondConnectionThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	start := time.Now()
	finding := probe(t, 300*time.Millisecond, [][]string{{"7", "100"}}, pgscript.Hang())
	require.Equal(t, pooler.Undecided, finding.Verdict)
	require.Less(t, time.Since(start), 10*time.Second, "pgx says goodbye for longer")
}

func TestProbe_withoutASecondConnection(t *testing.T) {
	t.Parallel()
	finding, err := pooler.Probe(t.Context(), 7, func(string) ([]string, error) { return []string{"7", "100"}, nil },
		func(context.Context) (*pgconn.PgConn, error) { return nil, errors.New("no more connections allowed") }, limit)
	require.NoError(t, err)
	require.Equal(t, pooler.Undecided, finding.Verdict)
	require.Contains(t, finding.Evidence, "no more connections allowed")
}

func TestProbe_returnsTheErrorsOfTheFirstConnection(t *testing.T) {
	t.Parallel()
	died := errors.New("died")
	_, err := pooler.Probe(t.Context(), 7, func(string) ([]string, error) { return nil, died }, nil, limit)
	require.ErrorIs(t, err, died)
}
