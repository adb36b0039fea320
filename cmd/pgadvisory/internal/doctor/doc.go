// Package doctor finds out what of a server, a role and a connection would break
// locks or fencing. It changes nothing: it takes one lock with a name of its own,
// for a moment, and draws no token.
package doctor
