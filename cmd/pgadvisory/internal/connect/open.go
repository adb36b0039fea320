package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Open returns a pool of one connection, which it has made.
func Open(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	conn, err := pool.Acquire(ctx) // costs nothing that is not needed anyway
	if err != nil {
		pool.Close()
		return nil, err
	}
	conn.Release()
	return pool, nil
}

// Socket is what a connection is made on, below TLS.
func Socket(conn net.Conn) (syscall.Conn, error) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a connection of the type %T has no socket", conn)
	}
	return socket, nil
}
