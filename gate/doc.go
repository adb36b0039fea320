// Package gate refuses late holders of a lock where what they write is not in a
// database: files, a service behind HTTP, a device.
//
// A process through which all writes to a resource go has a [Gate]. Each write brings the
// fencing token of its holder, from package fencing or redislease. The Gate remembers the
// highest token that it has let through, on disk or in a database, and refuses those
// below.
//
//	marks, err := gate.OpenFile("/var/lib/exports/marks")
//	if err != nil {
//		return err
//	}
//	g := gate.New(marks)
//	err = g.Do(ctx, "nightly-export", token, func(ctx context.Context) error {
//		return os.WriteFile(name, data, 0o644)
//	})
//	if errors.Is(err, gate.ErrStale) {
//		return nil // another has taken over
//	}
//
// [Gate.Handler] does it for HTTP: a request with a header Fencing-Token that is stale
// gets 409.
//
// # What it guarantees
//
// Once a write with a token was let through, writes with a lower one are refused, also
// after a crash of the process, as long as the marks are durable. While a write runs, no
// write with a higher token of the same resource begins: a late holder can't finish
// after the next one has begun. A resource's mark rises at its first write by a new
// holder; [Gate.Raise] raises it before.
//
// # What it does not
//
// A Gate knows of the writes that go through it. Two processes with a Gate each that
// write to the same files don't wait for each other, even if they share their marks. A
// token that is too high by mistake locks all others out until somebody corrects the
// mark.
//
// When the store compares by itself, let it: a table that package fencing guards, a script
// in Redis ([github.com/pgadvisory/pgadvisory/redislease.Fence]), a conditional write to
// an object store.
package gate
