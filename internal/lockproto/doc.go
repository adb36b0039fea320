// Package lockproto is the conversation with the server about locks: what a session is
// asked, and what its answers mean. It knows nothing of queues, pools or callers.
//
// Every statement runs on the one session that holds, or is to hold, the lock. Functions
// and operators are named with their schema, because a role's search_path may put others
// of the same name first. CASE forces the order inside a statement: it is the one
// construct for which PostgreSQL promises an order (manual, section 4.2.14). A target
// list and AND promise none.
//
// # The conversation
//
//	Probe     once for each connection: who answers, and with which settings
//	Try       a prepared statement: takes the locks if they are free
//	Resume    waits for the answer to a Try that the caller abandoned
//	Script    several statements in one round trip: waits for a slice, makes an Issue's
//	          receipt, takes a slot of a semaphore
//	Release   a prepared statement: frees the locks, and puts the settings back
//	Clear     frees whatever the session holds, and puts the settings back
//	Batch     a prepared statement: takes and frees many locks of one session
//
// Try, Resume and Script return one [Answer], whose [Status] says what the session holds.
// After an error nobody knows what it holds: the connection can only be destroyed.
package lockproto
