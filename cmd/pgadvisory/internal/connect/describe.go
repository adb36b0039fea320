package connect

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// refusedTLS is how pgconn says that a server has no TLS.
const refusedTLS = "server refused TLS connection"

// IsTLS reports whether a connection failed because of the settings for TLS: the
// server has none, or a certificate is not trusted. Waiting doesn't mend that.
func IsTLS(err error) bool {
	var failed *pgconn.ConnectError
	if !errors.As(err, &failed) {
		return false
	}
	for _, attempt := range attempts(failed) {
		var untrusted *tls.CertificateVerificationError
		if !strings.HasSuffix(attempt.Error(), refusedTLS) && !errors.As(attempt, &untrusted) {
			return false
		}
	}
	return true
}

// Describe is an error for people. Where it says that no connection could be made,
// it does so once for each address, by the attempt that got furthest: pgconn lists
// those with TLS and those without, and says of the whole in which order.
func Describe(err error) string {
	var failed *pgconn.ConnectError
	if !errors.As(err, &failed) {
		return err.Error()
	}
	return strings.Replace(err.Error(), failed.Error(), describe(failed), 1)
}

func describe(failed *pgconn.ConnectError) string {
	var lines []string
	at := make(map[string]int) // of the line of an address
	told := make(map[string]bool)
	for _, attempt := range attempts(failed) {
		address, reason, byServer := explain(attempt)
		line := reason
		if address != "" {
			line = address + ": " + reason
		}
		switch i, again := at[address]; {
		case !again:
			at[address] = len(lines)
			lines = append(lines, line)
		case !told[address] && !strings.HasSuffix(line, refusedTLS):
			lines[i] = line
		}
		told[address] = told[address] || byServer
	}
	whom := fmt.Sprintf("can't connect to database %s as %s: ", cmp.Or(failed.Config.Database, failed.Config.User), failed.Config.User)
	if len(lines) == 1 {
		return whom + lines[0]
	}
	return strings.TrimSpace(whom) + "\n  " + strings.Join(lines, "\n  ")
}

// attempts are the errors of which a failure consists.
func attempts(failed *pgconn.ConnectError) []error {
	inner := failed.Unwrap()
	if joined, ok := inner.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{inner}
}

// explain takes the error of an attempt apart. pgconn says of it
// "address (host): what failed: why".
func explain(attempt error) (address, reason string, byServer bool) {
	reason = attempt.Error()
	if inner := errors.Unwrap(attempt); inner != nil {
		address = strings.TrimSuffix(strings.TrimSuffix(reason, inner.Error()), ": ")
		reason = inner.Error()
	}
	var (
		pg  *pgconn.PgError
		op  *net.OpError
		dns *net.DNSError
	)
	switch {
	case errors.As(attempt, &dns):
		return "", dns.Error(), false
	case errors.As(attempt, &pg):
		return address, fmt.Sprintf("%s (SQLSTATE %s)", pg.Message, pg.Code), true
	case errors.As(attempt, &op) && op.Op == "dial":
		return address, strings.TrimPrefix(op.Err.Error(), "connect: "), false
	}
	for _, step := range []string{"dial error: ", "tls error: "} {
		reason = strings.TrimPrefix(reason, step)
	}
	return address, reason, false
}
