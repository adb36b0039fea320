module github.com/pgadvisory/pgadvisory/redislease

go 1.26.0

// Nothing is released yet, so that there is no version to require: v0.0.0
// stands for the tree that this module is part of. With the first tag it becomes
// that version, and the replace goes.
replace github.com/pgadvisory/pgadvisory => ../

require (
	github.com/pgadvisory/pgadvisory v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	golang.org/x/sys v0.50.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
)
