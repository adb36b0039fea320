package lockproto

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// With these settings the server ends an idle session whose client vanished without a
// word after about VanishTimeout, and never ends one that idles in health (manual,
// sections 20.3.2 and 20.11.1).
//
// The tcp_ settings say how soon the server notices that a client is gone. They harm
// nobody who uses the connection later. So they are set once for each connection, and
// stay, where they are stricter than what was there. What would have to be relaxed, and
// idle_session_timeout, the round trip that takes a lock sets, and the one that frees it
// puts back.
//
// Each try looks whether all are as they are known to be. A sentinel shows that RESET ALL or
// DISCARD ALL has undone what was set once, also where that changes no value.

// sentinel is a setting that means nothing to the server.
const sentinel = "pgadvisory.session"

// setting is one that a session with locks has.
type setting struct {
	name          string
	value, before string // to be set, and as the probe found it
}

// wantedSettings are those of a server of this kind.
func wantedSettings(known *info, vanishTimeout time.Duration) (wanted []setting) {
	// Rounded up: the server must not give the lock away earlier than the holder reckons.
	in := func(unit, d time.Duration) string { return strconv.FormatInt(int64((d+unit-1)/unit), 10) }
	for i, value := range []string{
		// Silence for half of the time, then three probes.
		in(time.Second, vanishTimeout/2), in(time.Second, vanishTimeout/6), "3", in(time.Millisecond, vanishTimeout), "0",
	} {
		if known.current[i] != "" { // else the server does not know it
			wanted = append(wanted, setting{allSettings[i], value, known.current[i]})
		}
	}
	return wanted
}

// allSettings are those that wantedSettings knows, in its order.
var allSettings = []string{
	"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout", idleSessionTimeout,
}

const idleSessionTimeout = "idle_session_timeout"

// staysSet reports whether s is set once for the connection. 0 is a default that is more
// lenient than any value.
func (s setting) staysSet() bool {
	value, err := strconv.Atoi(s.value)
	before, errBefore := strconv.Atoi(s.before)
	return err == nil && errBefore == nil && s.name != idleSessionTimeout && (before == 0 || value < before)
}

// settings are those that a lock sets, and its unlock puts back.
type settings []setting

// split says which settings are set once for a connection, and which ones for each lock.
// Of a pool of the Locker's own, whose connections serve nobody else, all are set once.
func split(wanted []setting, owned bool) (once []setting, each settings) {
	for _, s := range wanted {
		switch {
		case owned, s.staysSet():
			once = append(once, s)
		case s.name == idleSessionTimeout, s.value != s.before:
			each = append(each, s)
		}
	}
	return once, each
}

// setOnceSQL sets what is set once for a connection, and the sentinel. It selects how they
// are then, because not every connection takes them: that of a Unix socket does not.
func setOnceSQL(once []setting) string {
	set, are := []string{setConfig(sentinel, "'set'")}, "',', NULL"
	for _, s := range once {
		set = append(set, setConfig(s.name, literal(s.value)))
		are += ", pg_catalog.current_setting('" + s.name + "')"
	}
	return "SELECT CASE WHEN " + strings.Join(set, " AND ") + " THEN pg_catalog.concat_ws(" + are + ") END"
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

// areAsBefore is an SQL condition: the settings are as they are known to be while no lock
// is held. Other code can have changed each of them.
func areAsBefore(known *info) string {
	same := []string{is("current_setting('"+sentinel+"', true)", "'set'")}
	for i, name := range allSettings {
		if known.current[i] != "" {
			same = append(same, is("current_setting('"+name+"')", literal(known.current[i])))
		}
	}
	return strings.Join(same, " AND ")
}

func is(call, value string) string {
	return "pg_catalog." + call + " OPERATOR(pg_catalog.=) " + value
}

// apply is an SQL expression that sets all, and the application_name, and is true.
func (s settings) apply(name string) string {
	return s.set(name, func(one setting) string { return one.value })
}

// restore is apply with the settings as they were.
func (s settings) restore(name string) string {
	return s.set(name, func(one setting) string { return one.before })
}

func (s settings) set(name string, value func(setting) string) string {
	set := []string{setConfig("application_name", name)}
	for _, one := range s {
		if one.before != one.value {
			set = append(set, setConfig(one.name, literal(value(one))))
		}
	}
	return strings.Join(set, " AND ")
}

// setOnce notes how settings are that were set for good, by the answer to setOnceSQL.
func (known *info) setOnce(once []setting, answer string) error {
	are := strings.Split(answer, ",")
	if len(are) != len(once) {
		return wrongAnswer("the server answered the settings of a connection with %q", answer)
	}
	for i, s := range once {
		known.current[slices.Index(allSettings, s.name)] = are[i]
	}
	return nil
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
