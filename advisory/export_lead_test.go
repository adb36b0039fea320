package advisory

// The logic of Lead that needs no server.
var (
	Backoff = backoff
	Passes  = passes
)
