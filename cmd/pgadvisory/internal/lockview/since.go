package lockview

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// nameLimit is what the server keeps of an application_name.
const nameLimit = 63

// HolderName is the application_name by which a holder tells the name of its lock
// and since when it has it: the server records no such time. It is empty where
// there is no room for that.
func HolderName(lock, application string, since time.Time) string {
	mark := fmt.Sprintf(" @%d", since.Unix())
	for _, name := range []string{"lock " + lock + " of " + application + mark, "lock " + lock + mark} {
		if len(name) <= nameLimit {
			return name
		}
	}
	return ""
}

// heldSince is the time that a holder's application_name tells, if that is the
// name of the lock.
func heldSince(application, lock string) (since time.Time, ok bool) {
	rest, isHolder := strings.CutPrefix(application, "lock "+lock)
	at := strings.LastIndex(rest, " @")
	if !isHolder || lock == "" || at < 0 || at != 0 && !strings.HasPrefix(rest, " of ") {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(rest[at+len(" @"):], 10, 64)
	return time.Unix(seconds, 0), err == nil
}
