package lockproto

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are those of a session that holds a lock. The round trip that takes the lock
// sets them, and the one that frees it puts them back, so that neither costs another.
// The probe told what they were; before they are set the server makes sure that this is
// still true.
//
// In a pool of the Locker's own, whose connections serve nobody else, the probe sets them
// for good, and none is left to be set later.
type settings struct {
	names  []string // of those that the server knows
	values []string // to be set
	before []string // as they were
}

// settingsFor are those that a server of this kind knows (manual, sections 20.3.2 and
// 20.11.1). With them it ends an idle session whose client vanished without a word after
// about the given time, and never ends one that idles in health.
func settingsFor(known *info, vanishTimeout time.Duration) settings {
	// Rounded up: the server must not give the lock away earlier than the holder reckons.
	in := func(unit, d time.Duration) string { return strconv.FormatInt(int64((d+unit-1)/unit), 10) }
	var s settings
	add := func(name, value string) {
		if before := known.before[slices.Index(allSettings, name)]; before != "" {
			s.names, s.values, s.before = append(s.names, name), append(s.values, value), append(s.before, before)
		}
	}

	// Silence for half of the time, then three probes.
	add("tcp_keepalives_idle", in(time.Second, vanishTimeout/2))
	add("tcp_keepalives_interval", in(time.Second, vanishTimeout/6))
	add("tcp_keepalives_count", "3")
	add("tcp_user_timeout", in(time.Millisecond, vanishTimeout))
	if known.major >= 14 {
		add("idle_session_timeout", "0")
	}
	return s
}

// allSettings are those that settingsFor knows.
var allSettings = []string{
	"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
	"idle_session_timeout",
}

// currentSettings is a list of SQL expressions for the values of allSettings. A setting
// that the server does not know is NULL.
func currentSettings() string {
	current := make([]string, len(allSettings))
	for i, name := range allSettings {
		current[i] = fmt.Sprintf("pg_catalog.current_setting('%s', true)", name)
	}
	return strings.Join(current, ", ")
}

// areAsBefore is an SQL condition.
func (s settings) areAsBefore() string {
	same := []string{"true"} // never none
	for i, name := range s.names {
		same = append(same, fmt.Sprintf("pg_catalog.current_setting('%s') OPERATOR(pg_catalog.=) %s", name, literal(s.before[i])))
	}
	return strings.Join(same, " AND ")
}

// apply is an SQL expression that sets all and is true.
func (s settings) apply() string { return s.setTo(s.values) }

// restore is an SQL expression that puts back all, and the application_name, for which
// application is an expression, and is true.
func (s settings) restore(application string) string {
	return setName(application) + " AND " + s.setTo(s.before)
}

func (s settings) setTo(values []string) string {
	set := []string{"true"} // never none
	for i, name := range s.names {
		if s.before[i] != s.values[i] {
			set = append(set, setConfig(name, literal(values[i])))
		}
	}
	return strings.Join(set, " AND ")
}

// checkInterval is how often the server is to look for the client while it works on a
// statement, in milliseconds, where it can (manual, section 20.3.2). The statements of
// this package are short; those of a caller's transaction need it.
func checkInterval(known *info, vanishTimeout time.Duration) (millis int64, ok bool) {
	return max(1, (vanishTimeout / 3).Milliseconds()), known.major >= 14 && known.linux
}

// lookForClient has the server look for its client until the end of a transaction that
// was just begun, by a text that may end with a comment.
func lookForClient(millis int64) string {
	return fmt.Sprintf("\n; SET LOCAL client_connection_check_interval = %d", millis)
}
