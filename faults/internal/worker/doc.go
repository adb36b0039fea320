//go:build unix

// Package worker is a process that uses the library as an application does, and
// tells of each operation: it waits for keys, holds them, writes to the tables
// that they guard, often goes on after it has lost them, and reads.
//
// What it does next is chosen from a seed. It is told to rest, to end or to use
// up its pool in lines on standard input.
package worker
