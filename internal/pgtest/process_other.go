//go:build !unix

package pgtest

import (
	"errors"
	"syscall"
)

// newSession fails: without sessions and a POSIX shell nothing would end a
// server after this process was killed. DATABASE_URL and Docker remain.
func newSession(*account) (*syscall.SysProcAttr, error) {
	return nil, errors.New("needs a Unix system")
}
