//go:build !unix

package pgtest

func handleIgnoredSignals() {}
