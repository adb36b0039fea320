//go:build unix

package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// The scripts in testdata/script do what a user does. Those whose name ends with
// "prepared" get a server with prepared transactions. Besides testscript's own
// commands there are:
//
//	status N command...   runs a command that has to exit with N
//	shows N text command...
//	                      runs a command until its output has a text N times
//	sql 'statement'       runs a statement as a superuser
//	until 'expression'    waits until it is true
//	pooler mode [setting...]
//	                      starts a PgBouncer and sets POOLER_URL
//	proxy                 starts an HAProxy and sets PROXY_URL
//	standby               starts a pair and sets STANDBY_URL
func TestScripts(t *testing.T) {
	t.Parallel()
	binDir(t) // which takes its time, before the deadline is set
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Deadline:            time.Now().Add(5 * limit),
		Setup:               setUpScript,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status": scriptStatus, "shows": scriptShows, "sql": scriptSQL, "until": scriptUntil, "pooler": scriptPooler, "proxy": scriptProxy, "standby": scriptStandby,
		},
	})
}

type scriptKey string

const (
	databaseKey scriptKey = "database"
	testKey     scriptKey = "test"
)

func setUpScript(env *testscript.Env) error {
	t, ok := env.T().(testing.TB)
	if !ok {
		return errors.New("testscript's T is not a testing.TB")
	}
	needs := []pgtest.Need{pgtest.Passwords}
	if strings.HasSuffix(t.Name(), "prepared") {
		needs = append(needs, pgtest.PreparedTransactions)
	}
	db := pgtest.NewWith(t, needs...)
	env.Values[databaseKey], env.Values[testKey] = db, t
	parsed, err := url.Parse(db.DSN)
	if err != nil {
		return err
	}
	password, _ := parsed.User.Password()
	env.Setenv("PATH", binDir(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
	for name, value := range map[string]string{
		"DATABASE_URL": db.DSN, "PGPASSFILE": "/dev/null", "PGSERVICEFILE": "/dev/null", "HOME": env.WorkDir,
		"SERVER_HOST": parsed.Hostname(), "SERVER_PORT": parsed.Port(), "SERVER_USER": parsed.User.Username(),
		"SERVER_PASSWORD": password, "SERVER_DATABASE": db.Name,
	} {
		env.Setenv(name, value)
	}
	return nil
}

func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N command...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
}

func scriptShows(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: shows N text command...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	_, t := scriptDatabase(ts)
	eventually(t, args[1], func() bool {
		ts.Check(ts.Exec(args[2], args[3:]...))
		return strings.Count(ts.ReadFile("stdout"), args[1]) == want
	})
}

func scriptDatabase(ts *testscript.TestScript) (*pgtest.Database, testing.TB) {
	return ts.Value(databaseKey).(*pgtest.Database), ts.Value(testKey).(testing.TB)
}

func scriptSQL(ts *testscript.TestScript, neg bool, args []string) {
	withScriptConn(ts, func(conn *pgx.Conn) {
		_, err := conn.Exec(context.Background(), os.Expand(strings.Join(args, " "), ts.Getenv))
		if neg != (err != nil) {
			ts.Fatalf("error %v", err)
		}
	})
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	_, t := scriptDatabase(ts)
	withScriptConn(ts, func(conn *pgx.Conn) {
		eventually(t, strings.Join(args, " "), func() bool {
			var yes bool
			ts.Check(conn.QueryRow(context.Background(), "SELECT "+strings.Join(args, " ")).Scan(&yes))
			return yes != neg
		})
	})
}

func withScriptConn(ts *testscript.TestScript, do func(*pgx.Conn)) {
	db, _ := scriptDatabase(ts)
	conn, err := pgx.Connect(context.Background(), db.DSN)
	ts.Check(err)
	defer conn.Close(context.Background())
	do(conn)
}

func scriptPooler(ts *testscript.TestScript, _ bool, args []string) {
	db, t := scriptDatabase(ts)
	ts.Setenv("POOLER_URL", db.PgBouncer(t, args[0], args[1:]...))
}

func scriptProxy(ts *testscript.TestScript, _ bool, _ []string) {
	db, t := scriptDatabase(ts)
	ts.Setenv("PROXY_URL", db.HAProxy(t, pgtest.HAProxy{}))
}

func scriptStandby(ts *testscript.TestScript, _ bool, _ []string) {
	_, t := scriptDatabase(ts)
	ts.Setenv("STANDBY_URL", pgtest.StartPair(t).Standby.DSN)
}
