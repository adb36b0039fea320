package faultproxy_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

func TestRetarget_isForNewConnections(t *testing.T) {
	t.Parallel()
	first, heardByFirst := echo(t)
	second, heardBySecond := echo(t)
	proxy := faultproxy.Start(t, first.Addr().String())
	old := dial(t, proxy)
	requireEcho(t, old, "before\n")
	require.Equal(t, "before\n", <-heardByFirst)

	proxy.Retarget(second.Addr().String())
	requireEcho(t, dial(t, proxy), "new\n")
	require.Equal(t, "new\n", <-heardBySecond)
	requireEcho(t, old, "old\n")
	require.Equal(t, "old\n", <-heardByFirst)
}

func TestListen_isOverWhenItIsClosed(t *testing.T) {
	t.Parallel()
	target, _ := echo(t)
	proxy, err := faultproxy.Listen(target.Addr().String())
	require.NoError(t, err)
	conn := dial(t, proxy)
	requireEcho(t, conn, "hello\n")
	proxy.Close()
	_, err = read(conn, quiet)
	require.Error(t, err)
	_, err = net.Dial("tcp", proxy.Addr().String())
	require.Error(t, err)
}
