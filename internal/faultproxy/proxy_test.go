package faultproxy_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// quiet is how long a test watches for what must not come.
const quiet = 150 * time.Millisecond

func TestProxy_carriesBothDirections(t *testing.T) {
	t.Parallel()
	proxy, heard := echo(t)
	conn := dial(t, proxy)
	requireEcho(t, conn, "hello\n")
	require.Equal(t, "hello\n", <-heard)
}

func TestSwallow_leavesBothSidesInTheDark(t *testing.T) {
	t.Parallel()
	proxy, heard := echo(t)
	conn := dial(t, proxy)
	requireEcho(t, conn, "before\n")
	<-heard
	proxy.Swallow()
	write(t, conn, "after\n")
	requireSilence(t, conn)
	require.Empty(t, heard)

	requireEcho(t, dial(t, proxy), "a new connection\n")
}

func TestSwallowOnly_letsTheOtherDirectionThrough(t *testing.T) {
	t.Parallel()
	proxy, heard := echo(t)
	conn := dial(t, proxy)
	requireEcho(t, conn, "before\n")
	<-heard
	proxy.SwallowOnly(faultproxy.ToClient)
	write(t, conn, "after\n")
	require.Equal(t, "after\n", <-heard, "the server must hear it")
	requireSilence(t, conn)

	conn = dial(t, proxy)
	requireEcho(t, conn, "before\n")
	<-heard
	proxy.SwallowOnly(faultproxy.ToServer)
	write(t, conn, "after\n")
	requireSilence(t, conn)
	require.Empty(t, heard)
}

func TestReset_endsAConnectionWithAnError(t *testing.T) {
	t.Parallel()
	proxy, _ := echo(t)
	conn := dial(t, proxy)
	requireEcho(t, conn, "before\n")
	proxy.Reset()
	_, err := read(conn, 10*time.Second)
	require.ErrorContains(t, err, "reset")
}

func TestCut_endsAConnectionInOrder(t *testing.T) {
	t.Parallel()
	proxy, _ := echo(t)
	conn := dial(t, proxy)
	requireEcho(t, conn, "before\n")
	proxy.Cut()
	_, err := read(conn, 10*time.Second)
	require.ErrorIs(t, err, io.EOF)
}

func TestRefuseNew_closesNewConnectionsOnly(t *testing.T) {
	t.Parallel()
	proxy, _ := echo(t)
	old := dial(t, proxy)
	requireEcho(t, old, "before\n")
	proxy.RefuseNew(true)
	_, err := read(dial(t, proxy), 10*time.Second)
	require.ErrorIs(t, err, io.EOF)
	requireEcho(t, old, "the old one\n")

	proxy.RefuseNew(false)
	requireEcho(t, dial(t, proxy), "accepted again\n")
}

func TestHangNew_neverAnswersOnNewConnections(t *testing.T) {
	t.Parallel()
	proxy, heard := echo(t)
	old := dial(t, proxy)
	requireEcho(t, old, "before\n")
	<-heard
	proxy.HangNew(true)
	hung := dial(t, proxy)
	write(t, hung, "anybody there?\n")
	requireSilence(t, hung)
	require.Empty(t, heard)
	requireEcho(t, old, "the old one\n")

	proxy.HangNew(false)
	requireEcho(t, dial(t, proxy), "carried again\n")
	proxy.Reset()
	_, err := read(hung, 10*time.Second)
	require.ErrorContains(t, err, "reset", "the faults are for a hung connection too")
}

func TestDelay_holdsBackOneDirection(t *testing.T) {
	t.Parallel()
	proxy, heard := echo(t)
	conn := dial(t, proxy)
	requireEcho(t, conn, "before\n")
	<-heard

	const delay = 200 * time.Millisecond
	proxy.Delay(faultproxy.ToClient, delay)
	for name, conn := range map[string]net.Conn{"of now": conn, "new": dial(t, proxy)} {
		start := time.Now()
		write(t, conn, "slow\n")
		<-heard
		requireLine(t, conn, "slow\n")
		require.GreaterOrEqual(t, time.Since(start), delay, name)
	}

	proxy.Delay(faultproxy.ToClient, time.Hour)
	write(t, conn, "held back\n")
	<-heard
	requireSilence(t, conn)
	proxy.Delay(faultproxy.ToClient, 0)
	requireLine(t, conn, "held back\n")

	proxy.Delay(faultproxy.ToClient, time.Hour)
	write(t, conn, "held back\n")
	<-heard
	// The end of the test doesn't wait for the hour.
}

func TestCutIdle_cutsWhatCarriesNothing(t *testing.T) {
	t.Parallel()
	proxy, _ := echo(t)
	idle, busy := dial(t, proxy), dial(t, proxy)
	requireEcho(t, idle, "before\n")
	requireEcho(t, busy, "before\n")

	start := time.Now()
	const after = time.Second
	proxy.CutIdle(after)
	for time.Since(start) < 2*after {
		requireEcho(t, busy, "still here\n")
		requireSilence(t, busy)
	}
	_, err := read(idle, time.Second)
	require.ErrorIs(t, err, io.EOF)

	proxy.CutIdle(0)
	requireEcho(t, busy, "no limit any more\n")
}

// echo starts a proxy to a server that sends back each line, and reports it.
func echo(t *testing.T) (*faultproxy.Proxy, <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	heard := make(chan string, 1000)
	// Ends with the listener, at cleanup.
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			// Ends with the connection, at the proxy's cleanup.
			go func() {
				defer conn.Close()
				for r := bufio.NewReader(conn); ; {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					heard <- line
					if _, err := io.WriteString(conn, line); err != nil {
						return
					}
				}
			}()
		}
	}()
	return faultproxy.Start(t, listener.Addr().String()), heard
}

func dial(t *testing.T, proxy *faultproxy.Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", proxy.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func write(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	_, err := io.WriteString(conn, line)
	require.NoError(t, err)
}

// read returns what arrives next within the limit.
func read(conn net.Conn, limit time.Duration) (string, error) {
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return "", err
	}
	buf := make([]byte, 1024)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

func requireLine(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	got, err := read(conn, 10*time.Second)
	require.NoError(t, err)
	require.Equal(t, line, got)
}

func requireEcho(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	write(t, conn, line)
	requireLine(t, conn, line)
}

func requireSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	got, err := read(conn, quiet)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, got)
}
