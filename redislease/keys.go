package redislease

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// maxResource is how many bytes the name of a resource can have, as in package
// fencing.
const maxResource = 2000

// keys are the names in Redis of what belongs to a resource. They are in one hash
// slot. They are wire format: programs of different versions meet there.
type keys struct {
	lock    string // the lease, and the channel on which its release is told
	counter string // of the tokens
}

// escape keeps a name from ending its hash tag early, and two names from meeting.
var escape = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// keysOf returns the keys of a resource. With counters, that many are shared.
func keysOf(prefix string, counters int, resource string) (keys, error) {
	switch {
	case resource == "":
		return keys{}, fmt.Errorf("%w: it is empty", ErrInvalidResource)
	case len(resource) > maxResource:
		return keys{}, fmt.Errorf("%w: it has %d bytes, and can have %d", ErrInvalidResource, len(resource), maxResource)
	}
	if counters == 0 {
		lock := prefix + "{" + escape.Replace(resource) + "}"
		return keys{lock: lock, counter: lock + ":token"}, nil
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(resource)) // never an error
	slot := prefix + "{" + strconv.FormatUint(uint64(hash.Sum32())%uint64(counters), 10) + "}"
	return keys{lock: slot + ":lock:" + resource, counter: slot + ":token"}, nil
}

// ownerBytes make an owner that no two attempts share.
const ownerBytes = 16

func newOwner() string {
	var b [ownerBytes]byte
	_, _ = rand.Read(b[:]) // never an error
	return hex.EncodeToString(b[:])
}
