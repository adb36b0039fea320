package lockproto

import (
	"fmt"
	"strings"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// nameLimit is what the server keeps of an application_name (manual, section 20.8.1).
const nameLimit = 63

// sessionName is the application_name of a session that holds locks: which ones, and
// whose session it was before.
func sessionName(locks, application string) string {
	name := "lock " + locks
	if application != "" {
		name += " of " + application
	}
	return printable(name, nameLimit)
}

// applicationOf is the application_name that the session has, as it can be set again. A
// server reports ASCII, but a pooler reports what its client has said.
func applicationOf(hold *connhold.Hold) string {
	return printable(hold.ParameterStatus("application_name"), nameLimit)
}

// printable is the text in printable ASCII, of at most limit bytes. It writes each other
// byte as \x and its hexadecimal number, as the server does with an application_name
// since version 16. The text as it is could have bytes that are not in the client's
// encoding, or characters that the database's encoding lacks, and the server would refuse
// the statement that takes the lock.
func printable(text string, limit int) string {
	if len(text) <= limit && strings.IndexFunc(text, isUnprintable) < 0 {
		return text
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		part := string(rune(c))
		if isUnprintable(rune(c)) {
			part = fmt.Sprintf(`\x%02x`, c)
		}
		if b.Len()+len(part) > limit {
			break
		}
		b.WriteString(part)
	}
	return b.String()
}

func isUnprintable(c rune) bool { return c < ' ' || c > '~' }
