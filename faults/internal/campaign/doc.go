//go:build unix

// Package campaign is a run of the fault kit: segments of a few dozen rounds, each
// with new workers on the same tables, and a verdict after each.
package campaign
