//go:build unix

// Package checker judges a history: it is a pure function of what happened, and
// knows nothing of how it was made to happen.
//
// The rules, each of which has a file:
//
//	token      Tokens of a key grow strictly in the order of the grants.
//	stale      No write is accepted with a token below one that was accepted, or
//	           granted before the commit was asked for. No token of a holder is
//	           refused that held until its unlock.
//	content    Each acknowledged write is there at the end, each refused one is not,
//	           and what is there was written by somebody. Of what an asynchronous
//	           failover may lose only the end is missing.
//	exclusion  Grants of one key overlap only where a loss explains it.
//	notice     A holder that was cut off from its lock knows it within the bound.
//	bound      A call for a lock returns when its context ends, and Unlock within its
//	           timeout.
//	register   The reads and writes of each register are linearizable.
//	left       Nothing is left: no lock, connection, goroutine or process.
//	stuck      A key that nobody holds is granted.
//
// What order there was between two operations is taken from the clock only where
// one had ended before the other began. Everything else follows from what the
// server said.
package checker
