package redislease

import (
	"net"
	"syscall"
	"time"
)

// laneConn is the connection of a lane. Once a call was interrupted, no deadline that
// the client sets lets it go on.
type laneConn struct {
	net.Conn
	lane *lane
}

// socketConn is a laneConn whose socket the client can look at: it finds out there
// whether an idle connection has ended.
type socketConn struct {
	laneConn
	syscall.Conn
}

// wrap makes a connection that of the lane.
func (l *lane) wrap(conn net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[conn] = struct{}{}
	_ = conn.SetDeadline(l.bound(time.Time{})) // an error shows with the first command
	wrapped := laneConn{conn, l}
	if socket, ok := conn.(syscall.Conn); ok {
		return &socketConn{wrapped, socket}
	}
	return &wrapped
}

func (c *laneConn) Close() error {
	c.lane.mu.Lock()
	delete(c.lane.conns, c.Conn)
	c.lane.mu.Unlock()
	return c.Conn.Close()
}

// NetConn is how the client finds the socket below TLS.
func (c *laneConn) NetConn() net.Conn { return c.Conn }

func (c *laneConn) SetDeadline(t time.Time) error {
	c.lane.mu.Lock()
	defer c.lane.mu.Unlock()
	return c.Conn.SetDeadline(c.lane.bound(t))
}

func (c *laneConn) SetReadDeadline(t time.Time) error {
	c.lane.mu.Lock()
	defer c.lane.mu.Unlock()
	return c.Conn.SetReadDeadline(c.lane.bound(t))
}

func (c *laneConn) SetWriteDeadline(t time.Time) error {
	c.lane.mu.Lock()
	defer c.lane.mu.Unlock()
	return c.Conn.SetWriteDeadline(c.lane.bound(t))
}
