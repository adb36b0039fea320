//go:build unix

// Package fleet is the workers' processes, each behind a proxy of its own, so that
// a fault of the network hits one of them.
package fleet
