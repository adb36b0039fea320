package fencing

// The functions of the schema fencing are in the migrations; this is how they
// are called.
const (
	issueFunc = "fencing.issue"

	stampSQL   = "SELECT fencing.stamp($1::text, $2::bigint, $3::interval)"
	guardSQL   = "SELECT fencing.guard($1::text::regclass, $2::text)"
	guardBySQL = "SELECT fencing.guard_by($1::text::regclass, $2::text::name, $3::text)"
	unguardSQL = "SELECT fencing.unguard($1::text::regclass)"
	verifySQL  = "SELECT coalesce(target, ''), coalesce(resource, ''), coalesce(by_column, ''), coalesce(prefix, ''), coalesce(problem, ''), coalesce(fix, '') " +
		"FROM fencing.verify() ORDER BY target, problem"
)
