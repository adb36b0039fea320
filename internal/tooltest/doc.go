// Package tooltest runs the migrations of fencing with other tools, as their
// users would. It is a module of its own, so that nobody else has to download
// these.
package tooltest
