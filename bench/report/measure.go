package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// measure runs all ways of a workload one after the other, and that as often as
// there are rounds, so that what slows the machine down for a while slows
// all of them down.
func measure(ctx context.Context, w workload, rounds int, file string) error {
	scratch, err := os.MkdirTemp("", "pgadvisory-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err := os.Chmod(scratch, 0o777|os.ModeSticky); err != nil { // for the account that the servers run as, where this is root
		return err
	}
	program := filepath.Join(scratch, "bench.test")
	if err := run(ctx, io.Discard, nil, "go", "test", "-c", "-o", program, "."); err != nil {
		return err
	}
	var results bytes.Buffer
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "%s, %d of %d\n", w.name, i+1, rounds)
		// With TMPDIR the servers' files are on a disk and not in memory.
		if err := run(ctx, &results, []string{"TMPDIR=" + scratch}, program,
			"-test.run", "^$", "-test.bench", "^Benchmark"+w.name+"$", "-test.benchtime", w.time, "-test.timeout", "10m"); err != nil {
			return fmt.Errorf("%w\n%s", err, results.String())
		}
	}
	return os.WriteFile(file, results.Bytes(), 0o644)
}

func run(ctx context.Context, out io.Writer, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	return cmd.Run()
}
