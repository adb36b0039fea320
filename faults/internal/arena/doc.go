//go:build unix

// Package arena is what the workers fight over: a server and, when it is to fail
// over, its standby; the guarded tables; and a look at what is in them and at what
// is left behind.
package arena
