package lockview_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/lockview"
)

// A holder's application_name fits, whatever the lock's name, and tells since when
// it holds.
func TestHolderName(t *testing.T) {
	t.Parallel()
	since := time.Unix(1796072767, 0)
	for _, want := range []struct {
		name  string
		locks []string
	}{
		{"lock nightly of cron @1796072767", []string{"nightly"}},
		{"lock a b of cron @1796072767", []string{"a b"}},
		{`lock "a\nb" of cron @1796072767`, []string{"a\nb"}},
		{`lock "\u65e5\u672c" of cron @1796072767`, []string{"日本"}},
		{"lock a and 2 more of cron @1796072767", []string{"a", "b", "c"}},
		{"lock " + strings.Repeat("x", 46) + " @1796072767", []string{strings.Repeat("x", 46)}},
		{"lock " + strings.Repeat("x", 43) + "... @1796072767", []string{strings.Repeat("x", 100)}},
	} {
		name := lockview.HolderName(want.locks, "cron", since)
		require.Equal(t, want.name, name)
		require.LessOrEqual(t, len(name), 63)
	}
}

// row is of a session that holds, or waits.
func row(name, application, key string, pid uint32) lockview.Row {
	held := 4.0
	r := lockview.Row{
		Name: name, Key: key, Mode: "exclusive", PID: pid, User: "postgres", Application: application,
		Client: "192.168.100.100", State: lockview.Held, Held: &held,
	}
	r.Status = advisory.Status{Application: application, BackendStart: time.Unix(1, 0), ClientAddr: netip.MustParseAddr("192.168.100.100")}
	return r
}

func waiter(r lockview.Row, by ...uint32) lockview.Row {
	waiting := 75.0
	r.State, r.Held, r.Waiting, r.BlockedBy = lockview.Waiting, nil, &waiting, by
	return r
}

const longName = "export-of-the-customers-and-their-orders-to-the-warehouse-in-frankfurt"

func rows() []lockview.Row {
	return []lockview.Row{
		row("nightly-export", "lock nightly-export of pgadvisory @1796072767", "-2196931983678567086", 1234567),
		waiter(row("nightly-export", "lock nightly-export of pgadvisory", "-2196931983678567086", 1234568), 1234567, 1234569, 1234570, 1234571),
		row(longName, "lock export-of-the-customers-and-their-orders-... @1796072767", "-5263745809700597426", 1234572),
		row("export-日本", `lock "export-\u65e5\u672c" of a program with a long name @1796072767`, "3396212151223356179", 1234573),
		row("", "psql", "-9196931983678567086", 1234574),
		row("", "lock a and 2 more of cron @1796072767", "-8196931983678567086", 1234575),
	}
}

// Whatever the width, all lines fit, and nobody who waits is hidden.
func TestTable_fitsAnyWidth(t *testing.T) {
	t.Parallel()
	for width := 75; width <= 220; width++ {
		table := lockview.Table(rows(), width)
		for line := range strings.Lines(table) {
			wide := strings.Count(line, "日") + strings.Count(line, "本")
			require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n")))+wide, width, line)
		}
		require.Contains(t, table, "WAITING FOR", width)
		require.Regexp(t, `1m15s \(by 1234567(, 1234569, 1234570, 1234571| \+3)\)`, table, width)
		require.Contains(t, table, "-9196931983678567086", width)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{
		80: `
NAME                         MODE       PID      HELD FOR  WAITING FOR
nightly-export               exclusive  1234567  4s        -
nightly-export               exclusive  1234568  -         1m15s (by 1234567 +3)
export-of-the-customers-...  exclusive  1234572  4s        -
export-日本                  exclusive  1234573  4s        -
-9196931983678567086         exclusive  1234574  4s        -
(with a)                     exclusive  1234575  4s        -
`,
		120: `
NAME                              MODE       PID      APPLICATION               HELD FOR  WAITING FOR
nightly-export                    exclusive  1234567  pgadvisory                4s        -
nightly-export                    exclusive  1234568  pgadvisory                -         1m15s (by 1234567 +3)
export-of-the-customers-and-t...  exclusive  1234572  -                         4s        -
export-日本                       exclusive  1234573  a program with a long...  4s        -
-9196931983678567086              exclusive  1234574  psql                      4s        -
(with a)                          exclusive  1234575  cron                      4s        -
`,
	} {
		require.Equal(t, strings.TrimPrefix(want, "\n"), lockview.Table(rows(), width), width)
	}
	require.Contains(t, lockview.Table(rows(), 0), "1m15s (by 1234567, 1234569, 1234570, 1234571)")
}
