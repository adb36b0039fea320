package advisory

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// settings are what the server is to do with a session that holds a lock. They
// are set in the statement that grants the lock, and put back in the one that
// unlocks it, so that neither costs a round trip.
//
// What was set before is kept on the server meanwhile, in settings of our own:
// it may be different at each lock, and is as exact there as it can be.
//
// Where the short way has set them, it knows what was set before.
type settings struct {
	names  []string
	values []string

	short       *shortWay // nil when the server keeps what was set before
	application string    // the application_name before the short way
}

const (
	savedSettings = "pgadvisory.settings"
	savedName     = "pgadvisory.application_name"
)

// settingsFor are those that a server of this kind knows (manual, sections
// 20.3.2 and 20.11.1). With them it ends a session whose client vanished
// without a word after about the given time, idle or busy, and one that idles
// in health never.
func settingsFor(known *acquaintance, vanishTimeout time.Duration) settings {
	seconds := func(d time.Duration) string { return strconv.Itoa(max(1, int(d.Round(time.Second)/time.Second))) }
	millis := func(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }
	var s settings
	add := func(name, value string) { s.names, s.values = append(s.names, name), append(s.values, value) }

	// Silence for half of the time, then three probes.
	add("tcp_keepalives_idle", seconds(vanishTimeout/2))
	add("tcp_keepalives_interval", seconds(vanishTimeout/6))
	add("tcp_keepalives_count", "3")
	add("tcp_user_timeout", millis(vanishTimeout))
	if known.major >= 14 {
		add("idle_session_timeout", "0")
	}
	if known.major >= 14 && known.linux {
		add("client_connection_check_interval", millis(vanishTimeout/3))
	}
	return s
}

// allSettings are those that settingsFor knows.
var allSettings = []string{
	"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
	"idle_session_timeout", "client_connection_check_interval",
}

// currentSettings is a list of SQL expressions for the values of allSettings; one
// that the server does not know is NULL.
func currentSettings() string {
	current := make([]string, len(allSettings))
	for i, name := range allSettings {
		current[i] = fmt.Sprintf("pg_catalog.current_setting('%s', true)", name)
	}
	return strings.Join(current, ", ")
}

// apply is an SQL expression that sets all and is true. The order of the parts
// is forced by CASE; name is an expression for the application_name.
func (s settings) apply(name string) string {
	current := []string{"','", "''"} // never none
	set := []string{setConfig("application_name", name)}
	for i, n := range s.names {
		current = append(current, fmt.Sprintf("pg_catalog.current_setting('%s')", n))
		set = append(set, setConfig(n, "'"+s.values[i]+"'"))
	}
	return fmt.Sprintf("CASE WHEN pg_catalog.concat(%s, %s) IS NOT NULL THEN pg_catalog.concat(%s) IS NOT NULL END",
		setConfig(savedSettings, "pg_catalog.concat_ws("+strings.Join(current, ", ")+")"),
		setConfig(savedName, "pg_catalog.current_setting('application_name')"),
		strings.Join(set, ", "))
}

// set is a statement that sets all for good.
func (s settings) set() string {
	set := make([]string, len(s.names))
	for i, n := range s.names {
		set[i] = setConfig(n, "'"+s.values[i]+"'")
	}
	return "SELECT " + strings.Join(set, ", ")
}

// restore is an SQL expression that puts all back and is true.
func (s settings) restore() string {
	if s.short != nil {
		return s.short.restore(hexText(s.application))
	}
	set := make([]string, len(s.names))
	for i, n := range s.names {
		set[i] = setConfig(n, fmt.Sprintf("pg_catalog.split_part(pg_catalog.current_setting('%s'), ',', %d)", savedSettings, i+2))
	}
	set = append(set, setConfig("application_name", fmt.Sprintf("pg_catalog.current_setting('%s')", savedName)))
	return "pg_catalog.concat(" + strings.Join(set, ", ") + ") IS NOT NULL"
}

func setConfig(name, value string) string {
	return fmt.Sprintf("pg_catalog.set_config('%s', %s, false)", name, value)
}

// nameLimit is what the server keeps of an application_name (manual, section
// 20.8.1).
const nameLimit = 63

// labels names the first of several keys for an application_name.
func labels(keys []Key) string {
	if len(keys) == 1 {
		return keys[0].label()
	}
	return fmt.Sprintf("%s and %d more", keys[0].label(), len(keys)-1)
}

// sessionName is the application_name of a session that holds locks: which ones,
// and whose session it was before.
func sessionName(locks, application string) string {
	name := "lock " + locks
	if application != "" {
		name += " of " + application
	}
	if len(name) > nameLimit {
		name = strings.ToValidUTF8(name[:nameLimit], "")
	}
	return name
}
