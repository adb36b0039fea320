// Batchexport is a batch job that survives the worst moment for a lock: its
// holder is frozen in the middle of the work, the server gives the lock to the
// next one, and then the first wakes up and goes on as if nothing had happened.
//
//	go run ./examples/batchexport
//
// Three replicas, each a process of its own, want to export 1,707 earthquakes
// to one CSV file a day. The advisory lock lets one of them work at a time;
// the fence refuses what the woken one publishes too late. The program prints
// what happens, verifies the result and exits with 0 only if all of it is as
// it must be.
//
// Where to look: replica.go and export.go are what an application has;
// schema.go and stage.go are its set-up; scenario.go, crew.go and process.go
// play the bad luck; verify.go checks the result.
package main
