package pgtest

import (
	"crypto/rand"
	"path/filepath"
	"sync"
)

// All servers of this process that are not made from another one are copies of
// the first: a copy costs a tenth of an initdb. So they have one password.
var (
	password = sync.OnceValue(rand.Text)
	seeds    seedBank
)

// seedBank remembers, for each server program, a fresh data directory. It is in
// the folder of the server that was the first, and goes with it; whoever finds
// it gone makes a data directory of its own.
type seedBank struct {
	mu      sync.Mutex // guards folders
	folders map[string]string
}

// seedOf is where a server in the folder dir may leave its data directory for
// others, and where it may find that of another; the latter is empty if there is
// none.
func (b *seedBank) seedOf(bin binDir, dir string) (leave, find string) {
	program := filepath.Join(bin.path, "postgres")
	if resolved, err := filepath.EvalSymlinks(program); err == nil {
		program = resolved
	}
	leave = filepath.Join(dir, "seed")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.folders == nil {
		b.folders = make(map[string]string)
	}
	if find = b.folders[program]; find == "" {
		b.folders[program] = leave
		return leave, ""
	}
	return "", find
}
