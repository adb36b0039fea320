// Package bench has no code but benchmarks, of the locks and of what one would
// take in their place, side by side:
//
//	go run ./report           # all of them, several times in turn, into docs/performance.md
//	go test -bench Lock .     # some of them, once
//
// Each benchmark is a workload, and each how= below it is a way to do it. Raw
// ways show the limit: the bare statements, without whatever makes a lock
// trustworthy. Those of Redis need redis-server in PATH.
package bench
