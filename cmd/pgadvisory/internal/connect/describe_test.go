package connect_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
)

// serve plays a server without TLS, which answers each login with an error.
func serve(t *testing.T, code, message string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	// Ends with the listener.
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			refuse(conn, code, message)
		}
	}()
	return listener.Addr().String()
}

func refuse(conn net.Conn, code, message string) {
	defer func() { _ = conn.Close() }()
	backend := pgproto3.NewBackend(conn, conn)
	start, err := backend.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if _, isTLS := start.(*pgproto3.SSLRequest); isTLS {
		_, _ = conn.Write([]byte{'N'})
	} else {
		backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: message})
		_ = backend.Flush()
	}
	_, _ = io.Copy(io.Discard, conn)
}

func connectError(t *testing.T, dsn string) error {
	t.Helper()
	_, err := pgconn.Connect(t.Context(), dsn)
	var failed *pgconn.ConnectError
	require.ErrorAs(t, err, &failed)
	return err
}

// Of attempts with and without TLS the one counts that the server has answered, in
// whatever order they were made.
func TestDescribe_saysOnceWhatTheServerSays(t *testing.T) {
	t.Parallel()
	address := serve(t, "28P01", `password authentication failed for user "app"`)
	for _, mode := range []string{"disable", "allow", "prefer"} {
		err := connectError(t, "postgres://app@"+address+"/shop?sslmode="+mode)
		require.Equal(t, fmt.Sprintf(`can't connect to database shop as app: %s (127.0.0.1): password authentication failed for user "app" (SQLSTATE 28P01)`, address),
			connect.Describe(err), mode)
		require.False(t, connect.IsTLS(err))
		require.Equal(t, "lock nightly: "+connect.Describe(err), connect.Describe(fmt.Errorf("lock nightly: %w", err)))
	}
	err := connectError(t, "postgres://app@"+address+"/shop?sslmode=require")
	require.Contains(t, connect.Describe(err), "server refused TLS connection")
	require.True(t, connect.IsTLS(err))
}

func TestDescribe_hasALineForEachAddress(t *testing.T) {
	t.Parallel()
	one, other := serve(t, "57P03", "the database system is starting up"), serve(t, "57P03", "the database system is shutting down")
	err := connectError(t, "postgres://app@"+one+","+other+"/shop")
	require.Equal(t, "can't connect to database shop as app:\n"+
		"  "+one+" (127.0.0.1): the database system is starting up (SQLSTATE 57P03)\n"+
		"  "+other+" (127.0.0.1): the database system is shutting down (SQLSTATE 57P03)", connect.Describe(err))
}

func TestDescribe_ofAServerThatIsDown(t *testing.T) {
	t.Parallel()
	err := connectError(t, "postgres://app@127.0.0.1:1/shop")
	require.Equal(t, "can't connect to database shop as app: 127.0.0.1:1 (127.0.0.1): connection refused", connect.Describe(err))
	require.Equal(t, context.Canceled.Error(), connect.Describe(context.Canceled))
	require.False(t, connect.IsTLS(errors.New("another")))
}
