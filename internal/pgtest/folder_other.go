//go:build !linux

package pgtest

// freeSpace knows of no file system in memory.
func freeSpace(string) uint64 { return 0 }
