package pgtest

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// HAProxy is where a TCP proxy listens, and what it is told.
type HAProxy struct {
	Host   string   // where it listens, 127.0.0.1 if empty
	Bind   string   // ends the line that says so, such as "tcp-ut 3s"
	Client []string // lines for what faces clients, such as "option clitcpka"
	Server []string // lines for what faces the server
	Check  string   // ends the server's line, such as "check inter 100ms"
}

// HAProxy starts an HAProxy in front of the database and returns the URL to
// connect through it. It forwards bytes, and by itself ends no connection that
// idles. It ends with the test, or with this process, whichever is first. t is
// skipped where HAProxy is not installed.
func (d *Database) HAProxy(t testing.TB, options HAProxy) string {
	t.Helper()
	r, err := haproxyRelay(d.DSN, options)
	if err != nil {
		t.Skip(err)
	}
	return r.startFor(t)
}

func haproxyRelay(dsn string, options HAProxy) (relay, error) {
	program, err := findProgram("HAProxy", []string{"haproxy", "/usr/sbin/haproxy", "/usr/local/sbin/haproxy", "/opt/homebrew/bin/haproxy"},
		"Debian and Ubuntu: apt-get install haproxy; Fedora: dnf install haproxy; macOS: brew install haproxy")
	if err != nil {
		return relay{}, err
	}
	server, err := pgx.ParseConfig(dsn)
	if err != nil {
		return relay{}, err
	}
	return relay{
		name: "HAProxy", server: server, host: options.Host,
		signal: "KILL", files: []string{"haproxy.cfg"}, command: []string{program, "-db", "-f", "haproxy.cfg"},
		content: func(ports []int) []string { return []string{options.config(server, ports[0])} },
	}, nil
}

func (o HAProxy) config(server *pgx.ConnConfig, port int) string {
	host := o.Host
	if host == "" {
		host = "127.0.0.1"
	}
	lines := []string{
		"global", "maxconn 400", "nbthread 1",
		"defaults", "mode tcp", "timeout connect 10s", "timeout client 1d", "timeout server 1d", "timeout check 30s",
		"frontend clients", "bind " + net.JoinHostPort(host, strconv.Itoa(port)) + " " + o.Bind, "default_backend servers",
	}
	lines = append(lines, o.Client...)
	lines = append(lines, "backend servers")
	lines = append(lines, o.Server...)
	lines = append(lines, fmt.Sprintf("server primary %s %s",
		net.JoinHostPort(server.Host, strconv.Itoa(int(server.Port))), o.Check))
	return strings.Join(lines, "\n")
}
