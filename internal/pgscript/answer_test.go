package pgscript_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgscript"
)

const unlock = "SELECT pg_advisory_unlock($1::bigint)"

func TestOn_givesItsAnswersInOrder(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgscript.Serve(t, pgscript.On("pg_advisory_unlock(",
		pgscript.Fail("25P02", "aborted"), pgscript.Fail("57014", "canceled"), nil, pgscript.Row(pgscript.Bool(true)))))
	for _, code := range []string{"25P02", "57014"} {
		var failure *pgconn.PgError
		require.ErrorAs(t, conn.QueryRow(t.Context(), unlock, int64(1)).Scan(new(bool)), &failure)
		require.Equal(t, code, failure.Code)
		require.Equal(t, "ERROR", failure.Severity)
	}
	require.False(t, get[bool](t, conn, unlock, int64(1)), "nil is the session's own answer")
	require.True(t, get[bool](t, conn, unlock, int64(1)))
	require.True(t, get[bool](t, conn, unlock, int64(1)), "the last one stays")
}

func TestRow_carriesEachType(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pgscript.Serve(t, pgscript.On("everything", pgscript.Row(
				pgscript.Bool(true), pgscript.Int4(-4), pgscript.Int8(1<<40), pgscript.Text("x"), pgscript.Void(),
				pgscript.Of(pgtype.Int8OID, nil), pgscript.Of(pgtype.TimestamptzOID, at)))),
				func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode })
			var b bool
			var i4 int32
			var i8 int64
			var text, void string
			var null *int64
			var when time.Time
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT everything").Scan(&b, &i4, &i8, &text, &void, &null, &when))
			require.True(t, b)
			require.Equal(t, int32(-4), i4)
			require.Equal(t, int64(1<<40), i8)
			require.Equal(t, "x", text)
			require.Empty(t, void)
			require.Nil(t, null)
			require.True(t, at.Equal(when))
		})
	}
}

func TestFatal_endsTheSession(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgscript.Serve(t, pgscript.On("pg_try_advisory_lock",
		pgscript.Fatal("57P01", "terminating connection due to administrator command"))))
	err := conn.QueryRow(t.Context(), "SELECT pg_try_advisory_lock($1::bigint)", int64(1)).Scan(new(bool))
	var failure *pgconn.PgError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "57P01", failure.Code)
	require.Equal(t, "FATAL", failure.Severity)
	require.Error(t, conn.Ping(t.Context()))
}

func TestClose_endsTheSocket(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgscript.Serve(t, pgscript.On("unlock", pgscript.Close())))
	err := conn.QueryRow(t.Context(), unlock, int64(1)).Scan(new(bool))
	require.ErrorContains(t, err, "unexpected EOF")
	require.True(t, conn.IsClosed())
}

func TestHang_neverAnswers(t *testing.T) {
	t.Parallel()
	peer := pgscript.Serve(t, pgscript.On("-- heartbeat", pgscript.Hang()))
	conn := connect(t, peer)
	require.NoError(t, conn.Ping(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := conn.PgConn().Exec(ctx, "-- heartbeat").ReadAll()
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Eventually(t, func() bool { return peer.Cancels() == 1 }, time.Minute, time.Millisecond)
	require.Equal(t, 1, peer.Sessions())
}

func TestAfter_waitsForTheTest(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 1), make(chan struct{})
	conn := connect(t, pgscript.Serve(t, func(q pgscript.Query) *pgscript.Answer {
		if q.SQL != "SELECT slow" {
			return nil
		}
		if !q.Describing {
			asked <- struct{}{}
		}
		return pgscript.Row(pgscript.Int4(1)).After(release)
	}))
	done := make(chan error, 1)
	// Ends with the answer; awaited below.
	go func() { done <- conn.QueryRow(context.Background(), "SELECT slow").Scan(new(int)) }()
	<-asked
	require.Empty(t, done)
	close(release)
	require.NoError(t, <-done)
}

func TestNotices_precedeTheAnswer(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	peer := pgscript.Serve(t,
		pgscript.On("some", pgscript.Row(pgscript.Int4(1)).Notices(2500)),
		pgscript.On("endless", pgscript.Row(pgscript.Int4(1)).Notices(-1)))
	conn := connect(t, peer, func(c *pgx.ConnConfig) {
		c.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { seen.Add(1) }
	})
	require.Equal(t, 1, get[int](t, conn, "SELECT some"))
	require.Equal(t, int64(2500), seen.Load())

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, conn.QueryRow(ctx, "SELECT endless").Scan(new(int)), context.DeadlineExceeded)
}

func TestParameter_changesASetting(t *testing.T) {
	t.Parallel()
	peer := pgscript.Serve(t, pgscript.On("failover", pgscript.Done("DO").Parameter("in_hot_standby", "on").Status('E')))
	peer.SetParameter("server_version", "14.0")
	peer.SetParameter("in_hot_standby", "")
	conn := connect(t, peer)
	require.Equal(t, "14.0", conn.PgConn().ParameterStatus("server_version"))
	require.Empty(t, conn.PgConn().ParameterStatus("in_hot_standby"))

	_, err := conn.Exec(t.Context(), "failover")
	require.NoError(t, err)
	require.Equal(t, "on", conn.PgConn().ParameterStatus("in_hot_standby"))
	require.Equal(t, byte('E'), conn.PgConn().TxStatus())
}

func TestServe_reportsAnAnswerThatTheClientWouldMisread(t *testing.T) {
	t.Parallel()
	complaints := &complaints{TB: t}
	peer := pgscript.Serve(complaints, func(q pgscript.Query) *pgscript.Answer {
		if q.Describing {
			return pgscript.Row(pgscript.Bool(true))
		}
		return pgscript.Row(pgscript.Int8(1))
	})
	err := connect(t, peer).QueryRow(t.Context(), "SELECT it").Scan(new(bool))
	require.Error(t, err)
	require.NotErrorIs(t, err, pgx.ErrNoRows)
	require.Equal(t, int64(1), complaints.n.Load())
}

// complaints is a test that counts instead of failing.
type complaints struct {
	testing.TB
	n atomic.Int64
}

func (c *complaints) Errorf(string, ...any) { c.n.Add(1) }
