package advisory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// settings are what the server is to do with a session that holds a lock. They
// are set in the round trip that asks for the lock, and put back in the one that
// unlocks it, so that neither costs another. What they were is known from when the
// session was met; before they are set the server makes sure that it is still true.
//
// In a pool of the Locker's own, whose connections serve nobody else, they are set
// for good when a session is met, and none is left to be set later.
type settings struct {
	names  []string // of those that the server knows
	values []string // to be set
	before []string // as they were
}

// settingsFor are those that a server of this kind knows (manual, sections
// 20.3.2 and 20.11.1). With them it ends an idle session whose client vanished
// without a word after about the given time, and one that idles in health never.
func settingsFor(known *acquaintance, vanishTimeout time.Duration) settings {
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

// checkInterval is how often the server is to look for the client while it works on a
// statement, in milliseconds, where it can (manual, section 20.3.2). The statements
// of a Locker's own are short; those of [Lock.Tx] need it.
func checkInterval(known *acquaintance, vanishTimeout time.Duration) (millis int64, ok bool) {
	return max(1, (vanishTimeout / 3).Milliseconds()), known.major >= 14 && known.linux
}

// allSettings are those that settingsFor knows.
var allSettings = []string{
	"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
	"idle_session_timeout",
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

// restore is an SQL expression that puts all back, and the application_name, for which
// there is an expression, and is true.
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

// setName is an SQL expression that sets the application_name and is true.
func setName(name string) string { return setConfig("application_name", name) }

func setConfig(name, value string) string {
	return fmt.Sprintf("pg_catalog.set_config('%s', %s, false) IS NOT NULL", name, value)
}

// literal is a value of a setting in SQL.
func literal(value string) string {
	for _, c := range []byte(value) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return hexText(value)
		}
	}
	return "'" + value + "'"
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
	return printable(name, nameLimit)
}

// applicationOf is the application_name that the session has, as it can be set
// again. A server reports ASCII, but a pooler what its client has said.
func applicationOf(hold *connhold.Hold) string {
	return printable(hold.ParameterStatus("application_name"), nameLimit)
}

// printable is the text in printable ASCII, of at most limit bytes: each other byte
// as \x and its hexadecimal number, which is what the server makes of an
// application_name since version 16. In the text as it is the server would find
// bytes that are none of the client's encoding, or characters that the database's
// encoding lacks, and refuse the statement that takes the lock.
func printable(text string, limit int) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		part := string(rune(c))
		if c < ' ' || c > '~' {
			part = fmt.Sprintf(`\x%02x`, c)
		}
		if b.Len()+len(part) > limit {
			break
		}
		b.WriteString(part)
	}
	return b.String()
}
