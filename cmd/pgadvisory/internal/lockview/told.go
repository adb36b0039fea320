package lockview

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// nameLimit is what the server keeps of an application_name.
const nameLimit = 63

// cut ends a name for which there was no room.
const cut = "..."

// HolderName is the application_name by which a holder tells the name of its lock,
// or the first of several, and since when it has them: the server records no such
// time. Where there is not enough room it leaves out the application, and then the
// end of the name.
func HolderName(locks []string, application string, since time.Time) string {
	label := ascii(locks[0])
	if n := len(locks) - 1; n > 0 {
		label += fmt.Sprintf(" and %d more", n)
	}
	mark := fmt.Sprintf(" @%d", since.Unix())
	for _, name := range []string{"lock " + label + " of " + application + mark, "lock " + label + mark} {
		if len(name) <= nameLimit {
			return name
		}
	}
	return ("lock " + label)[:nameLimit-len(cut)-len(mark)] + cut + mark
}

// ascii is a name as an application_name can have it: the server replaces all but
// printable ASCII there.
func ascii(name string) string {
	for _, r := range name {
		if r > unicode.MaxASCII || !unicode.IsPrint(r) {
			return strconv.QuoteToASCII(name)
		}
	}
	return name
}

// told is what an application_name tells of its session's locks.
type told struct {
	rest  string    // what follows "lock ", without the time
	since time.Time // or zero
}

// toldBy reads an application_name. ok is false for one that tells of no lock.
func toldBy(application string) (t told, ok bool) {
	t.rest, ok = strings.CutPrefix(application, "lock ")
	if at := strings.LastIndex(t.rest, " @"); at >= 0 {
		if seconds, err := strconv.ParseInt(t.rest[at+len(" @"):], 10, 64); err == nil {
			t.rest, t.since = t.rest[:at], time.Unix(seconds, 0)
		}
	}
	return t, ok
}

// candidates are the names that may be meant. What follows the name may be part of
// it, so all possibilities are returned; the lock's number tells.
func (t told) candidates() []string {
	names := []string{t.rest}
	for _, separator := range []string{" of ", " and "} {
		for i := range t.rest {
			if strings.HasPrefix(t.rest[i:], separator) {
				names = append(names, t.rest[:i])
			}
		}
	}
	for _, name := range names {
		if quoted, err := strconv.QuotedPrefix(name); err == nil && quoted == name {
			if plain, err := strconv.Unquote(quoted); err == nil {
				names = append(names, plain)
			}
		} else if plain, changed := withBytes(name); changed {
			names = append(names, plain)
		}
	}
	return names
}

// withBytes undoes what servers from 16 on do to bytes beyond ASCII: \xe6.
func withBytes(name string) (plain string, changed bool) {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if strings.HasPrefix(name[i:], `\x`) && i+4 <= len(name) {
			if n, err := strconv.ParseUint(name[i+2:i+4], 16, 8); err == nil {
				b.WriteByte(byte(n))
				changed = true
				i += 3
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String(), changed
}

// isFor reports whether a lock is meant. Of several locks only the first has its
// name there, and of a long name only the beginning; a session that tells of
// either holds no other locks.
func (t told) isFor(lock string) bool {
	if lock == "" {
		return t.isCut() || t.isOfSeveral()
	}
	label := ascii(lock)
	after, isThis := strings.CutPrefix(t.rest, label)
	switch {
	case isThis && (after == "" || strings.HasPrefix(after, " of ") || strings.HasPrefix(after, " and ")):
		return true
	case t.isCut():
		return strings.HasPrefix(label, strings.TrimSuffix(t.rest, cut))
	default:
		return t.isOfSeveral()
	}
}

// isCut reports whether the name is not there to its end. Without a time, the
// server has cut it.
func (t told) isCut() bool {
	return strings.HasSuffix(t.rest, cut) || t.since.IsZero() && len("lock "+t.rest) == nameLimit
}

// isOfSeveral reports whether it is the name of the first of several locks.
func (t told) isOfSeveral() bool {
	_, after, _ := strings.Cut(t.rest, " and ")
	digits, _, ok := strings.Cut(after, " more")
	_, err := strconv.Atoi(digits)
	return ok && err == nil
}
