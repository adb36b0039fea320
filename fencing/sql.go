package fencing

// The functions of the schema fencing are in the migrations; this is how they
// are called.
const (
	issueFunc = "fencing.issue"

	stampSQL   = "SELECT fencing.stamp($1::text, $2::bigint, $3::interval)"
	guardSQL   = "SELECT fencing.guard($1::text::regclass, $2::text)"
	unguardSQL = "SELECT fencing.unguard($1::text::regclass)"
)
