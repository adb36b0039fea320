package advisory

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// Key names one advisory lock of a database. PostgreSQL knows two disjoint
// spaces of locks, those of one bigint and those of two ints; a Key is in one
// of them (PostgreSQL manual, section 9.28.10).
//
// Keys are comparable. Keys that were made in different ways may compare
// unequal and still be the same lock, as Name("x") and ID of its hash are; a
// [Locker] goes by the lock. The zero Key is not valid.
//
// What a Key maps to is a wire format that other programs and other languages
// rely on: it does not change between versions.
type Key struct {
	kind keyKind
	id   int64 // for pair: class in the high half, object in the low one
	name string
}

type keyKind uint8

const (
	noKey keyKind = iota
	nameKey
	idKey
	pairKey
)

// Name is the lock of a name: its number is the server's
// hashtextextended(name, 0), so that psql and any other language take the same
// lock with pg_advisory_lock(hashtextextended('...', 0)).
//
// A lock on an empty name, or on one that PostgreSQL can't hold as text
// because it is not valid UTF-8 or contains a zero byte, is refused. The
// number agrees with that of a server whose database encoding is UTF8 and
// whose byte order is little-endian, as on x86-64 and ARM.
//
// Two of n names fall on one number with a probability of about n²/2⁶⁵: one in
// 37 million for a million names. They then exclude each other.
func Name(name string) Key { return Key{kind: nameKey, id: lockid.Hash(name), name: name} }

// ID is the lock pg_advisory_lock(id) of one bigint.
func ID(id int64) Key { return Key{kind: idKey, id: id} }

// Pair is the lock pg_advisory_lock(class, object) of two ints. No Pair ever
// excludes a Name or an ID, whatever the numbers.
func Pair(class, object int32) Key {
	return Key{kind: pairKey, id: lockid.OfPair(class, object).Number}
}

// String is for people: the name where there is one, and the number.
func (k Key) String() string {
	switch k.kind {
	case noKey:
		return "no key"
	case nameKey:
		return fmt.Sprintf("%q (%d)", k.name, k.id)
	case pairKey:
		return fmt.Sprintf("(%d, %d)", k.lockID().Class(), k.lockID().Object())
	default:
		return strconv.FormatInt(k.id, 10)
	}
}

// label is the name where there is one, and else the number.
func (k Key) label() string {
	if k.kind == nameKey {
		return k.name
	}
	return k.String()
}

// SQL is the argument text for pg_advisory_lock and its siblings, to paste into
// psql. It is empty for the zero Key.
func (k Key) SQL() string {
	if k.kind == noKey {
		return ""
	}
	return k.lockID().SQL()
}

// lockID is the lock, however the Key was made.
func (k Key) lockID() lockid.ID {
	if k.kind == pairKey {
		return lockid.ID{Space: lockid.Pairs, Number: k.id}
	}
	return lockid.OfNumber(k.id)
}

// targetsOf returns what to lock for keys, each lock once, in the order of
// [lockid.Compare].
func targetsOf(keys []Key, shared bool) []lockid.Target {
	targets := make([]lockid.Target, len(keys))
	for i, k := range keys {
		targets[i] = lockid.Target{ID: k.lockID(), Shared: shared}
	}
	return lockid.Sort(targets)
}

// nameOf names the first of several keys, for an application_name.
func nameOf(keys []Key) string {
	if len(keys) == 1 {
		return keys[0].label()
	}
	return fmt.Sprintf("%s and %d more", keys[0].label(), len(keys)-1)
}

func (k Key) validate() error {
	switch {
	case k.kind == noKey:
		return fmt.Errorf("%w: it is the zero Key; make one with Name, ID or Pair", ErrInvalidKey)
	case k.kind != nameKey:
		return nil
	case k.name == "":
		return fmt.Errorf("%w: the name is empty", ErrInvalidKey)
	case !utf8.ValidString(k.name):
		return fmt.Errorf("%w: the name %q is not valid UTF-8", ErrInvalidKey, k.name)
	case strings.ContainsRune(k.name, 0):
		return fmt.Errorf("%w: the name %q contains a zero byte, which PostgreSQL's text can't", ErrInvalidKey, k.name)
	default:
		return nil
	}
}

func validateAll(keys []Key) error {
	if len(keys) == 0 {
		return fmt.Errorf("%w: there is none", ErrInvalidKey)
	}
	for _, k := range keys {
		if err := k.validate(); err != nil {
			return err
		}
	}
	return nil
}
