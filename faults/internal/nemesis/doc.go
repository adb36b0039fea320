//go:build unix

// Package nemesis does harm: to processes, connections and servers, one action
// after the other, in an order that a seed decides, and makes it good again.
package nemesis
