package main

// workload is one benchmark and how it is shown.
type workload struct {
	name, time string // of the benchmark, and its -benchtime
	title      string
	base       string // the how= to which the others are compared
	unit       string // what is compared
	scale      float64
	label      string // of the scaled unit
}

var workloads = []workload{
	{"TryLock", "200ms", "A lock that is free, and its unlock", "pgxpool", "sec/op", 1e6, "µs"},
	{"RedisTryLock", "1x", "A lock in Redis that is free, and its unlock, median", "redislock", "p50-sec", 1e6, "µs"},
	{"TryRLock", "200ms", "The same in the shared mode", "pgxpool", "sec/op", 1e6, "µs"},
	{"TryLockAll", "200ms", "Ten locks at once, and their unlock", "pgxpool-arrays", "sec/op", 1e6, "µs"},
	{"Fenced", "200ms", "A lock with a token, durable, and its unlock", "pgxpool-same-write", "sec/op", 1e6, "µs"},
	{"OwnKeys64", "6400x", "64 goroutines on keys of their own: time for one lock and unlock", "pgxpool-64-connections", "sec/op", 1e6, "µs"},
	{"OneKey64", "2000x", "64 goroutines on one key: time for one lock and unlock", "pg_advisory_lock-64-connections", "sec/op", 1e6, "µs"},
	{"HandOff", "60x", "From the unlock to the next holder, median", "pg_advisory_lock", "p50-sec", 1e6, "µs"},
	{"Loss", "60x", "From the end of the backend to the news of it, median", "blocking-read", "p50-sec", 1e6, "µs"},
	{"Hold", "2x", "Taking and giving back many locks on one connection", "pgx-one-array", "sec/op", 1e3, "ms"},
	{"Write", "1x", "A transaction that writes, median", "unguarded", "p50-sec", 1e6, "µs"},
	{"BackendCPU", "20000x", "Processor time of the server for one statement", "insert", "cpu-sec/op", 1e6, "µs"},
	{"Bulk", "1x", "A million rows", "unguarded", "sec/op", 1e3, "ms"},
}
