package pgtest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// An account is the operating system user that a server runs as.
type account struct {
	uid, gid uint32
}

// serverAccount returns nil if the current user can run a server. PostgreSQL
// refuses to run as root, who is therefore replaced by "postgres", or by
// "nobody" where PostgreSQL was installed without its user.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	found, err := user.Lookup("postgres")
	if err != nil {
		if found, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("no user to run the server as, since root can't: %w", err)
		}
	}
	uid, err := strconv.ParseUint(found.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user id of %s: %w", found.Username, err)
	}
	gid, err := strconv.ParseUint(found.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("group id of %s: %w", found.Username, err)
	}
	return &account{uid: uint32(uid), gid: uint32(gid)}, nil
}
