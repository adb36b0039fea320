package pgtest

import "syscall"

// freeSpace is what an ordinary user can still write below path, in bytes; 0 if
// there is no such path.
func freeSpace(path string) uint64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0
	}
	return fs.Bavail * uint64(fs.Bsize)
}
