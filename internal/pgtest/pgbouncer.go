package pgtest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// pgbouncerPlaces are where packages put PgBouncer; not all are in everybody's
// PATH.
var pgbouncerPlaces = []string{
	"pgbouncer",
	"/usr/sbin/pgbouncer",
	"/usr/local/sbin/pgbouncer",
	"/usr/local/bin/pgbouncer",
	"/opt/homebrew/bin/pgbouncer",
}

// PgBouncer starts a PgBouncer in front of the database and returns the URL to
// connect through it, as the database's own user. mode is session, transaction
// or statement; settings are lines for the section [pgbouncer], such as
// "default_pool_size = 1" (4 if not given). It ends with the test, or with this
// process, whichever is first. t is skipped where PgBouncer is not installed.
//
// To have [Database.Pool] and [Database.Conn] go through it, set the DSN of a
// copy of d. See [Database.BehindPgBouncer] for one that tests share.
func (d *Database) PgBouncer(t testing.TB, mode string, settings ...string) string {
	t.Helper()
	program, err := findPgBouncer()
	if err != nil {
		t.Skip(err)
	}
	server, err := pgx.ParseConfig(d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	dsn, w, err := startPgBouncer(t.Context(), program, server, func(port int) pgbouncerFiles {
		return pgbouncerFiles{config: configForOne(server, d.Name, port, mode, settings)}
	})
	if err != nil {
		t.Fatal(err)
	}
	closeRelay(t, "PgBouncer", w)
	return dsn
}

func findPgBouncer() (string, error) {
	return findProgram("PgBouncer", pgbouncerPlaces, "Debian and Ubuntu: apt-get install pgbouncer; "+
		"Fedora: dnf install pgbouncer; macOS: brew install pgbouncer")
}

// pgbouncerFiles are what a PgBouncer is told.
type pgbouncerFiles struct {
	config string // pgbouncer.ini
	users  string // the file that the former may name as its auth_file
}

// startPgBouncer returns the URL of the server's database through a PgBouncer on
// a free port.
func startPgBouncer(ctx context.Context, program string, server *pgx.ConnConfig, files func(port int) pgbouncerFiles) (string, *watchdog, error) {
	return startRelay(ctx, relay{
		name: "PgBouncer", server: server,
		// It keeps nothing that a kill could spoil, and which signal means what
		// differs between its versions.
		signal: "KILL", files: []string{"pgbouncer.ini", "users"}, command: []string{program, "pgbouncer.ini"},
		content: func(ports []int) []string { f := files(ports[0]); return []string{f.config, f.users} },
	})
}

// configForOne is the pgbouncer.ini for one database. Whoever connects is let in
// and becomes the one user whose password is in there: what is tested is the
// pooling.
func configForOne(server *pgx.ConnConfig, database string, port int, mode string, settings []string) string {
	lines := append([]string{
		"[databases]",
		fmt.Sprintf("%s = host=%s port=%d dbname=%s user=%s password=%s", database,
			quoteSetting(server.Host), server.Port, database, quoteSetting(server.User), quoteSetting(server.Password)),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + strconv.Itoa(port),
		"unix_socket_dir =",
		"auth_type = any",
		"pool_mode = " + mode,
		"default_pool_size = 4",
		"max_client_conn = 200",
		"ignore_startup_parameters = extra_float_digits,options,search_path,statement_timeout,lock_timeout," +
			"idle_session_timeout,idle_in_transaction_session_timeout",
	}, settings...) // of two settings with one name, the later counts
	return strings.Join(lines, "\n")
}

// quoteSetting makes a value fit for the list of databases.
func quoteSetting(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }
