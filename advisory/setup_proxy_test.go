package advisory_test

import (
	"context"
	"encoding/binary"
	"net"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// proxied is a proxy on the way that the Lockers take.
type proxied struct {
	*faultproxy.Proxy
	to string // the server's address, or its pooler's
}

func (b *bundle) proxy(t *testing.T) proxied {
	t.Helper()
	c, err := pgx.ParseConfig(b.via.DSN)
	require.NoError(t, err)
	to := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	return proxied{faultproxy.Start(t, to), to}
}

// through makes a pool connect by way of the proxy.
func through(p proxied) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.Port = p.Addr().IP.String(), uint16(p.Addr().Port)
		c.ConnConfig.Fallbacks = nil
		if !isPooled() {
			return
		}
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &cancelsPastProxy{conn, p.to}, nil
		}
	}
}

// cancelsPastProxy sends cancel requests, where the proxy lets them connect, to
// the pooler itself. One that is cut off on its way ends a PgBouncer before 1.20
// (its issue 801), and with it all tests that use it.
type cancelsPastProxy struct {
	net.Conn
	to string
}

// cancelRequest is the code in such a message (manual, section 55.7).
const cancelRequest = 80877102

func (c *cancelsPastProxy) Write(message []byte) (int, error) {
	if len(message) == 16 && binary.BigEndian.Uint32(message[4:]) == cancelRequest {
		past, err := net.Dial("tcp", c.to)
		if err != nil {
			return 0, err
		}
		_ = c.Close()
		c.Conn = past
	}
	return c.Conn.Write(message)
}
