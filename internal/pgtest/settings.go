package pgtest

// serverSettings hold for every server that this package starts. A server given
// by DATABASE_URL keeps its own.
var serverSettings = []struct{ name, value string }{
	// Nothing outlives the process, so nothing has to survive a crash.
	{"fsync", "off"},
	{"full_page_writes", "off"},
	// Else it would be where nobody removes it after a server was killed.
	{"dynamic_shared_memory_type", "mmap"},
	// The files may be in memory.
	{"max_wal_size", "128MB"},
	// A standby that is made on a busy machine asks for what is older than two
	// checkpoints.
	{"wal_keep_size", "64MB"},
	// Parallel tests, each with pools of its own.
	{"max_connections", "200"},
	// Logical decoding and two-phase commit are among the things tested.
	{"wal_level", "logical"},
	{"max_prepared_transactions", "5"},
	// See logMarker.
	{"log_line_prefix", "%m [%p] %q[%d] "},
}

// logMarker is what the prefix of a log line holds for a session of the given
// database, and for no other.
func logMarker(database string) string { return "] [" + database + "] " }
