//go:build unix

package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// BenchmarkRun is what pgadvisory run adds to a command: the command with it and
// without it in turn, so that both meet the same machine. The figures are medians.
func BenchmarkRun(b *testing.B) {
	dsn := pgtest.New(b).DSN
	program := filepath.Join(binDir(b), program)
	run := func(name string, args ...string) time.Duration {
		cmd := exec.Command(name, args...)
		cmd.Env = environ(dsn)
		begun := time.Now()
		require.NoError(b, cmd.Run())
		return time.Since(begun)
	}
	command := []string{"sh", "-c", "echo $PGADVISORY_TOKEN"}
	for _, mode := range []struct {
		name  string
		flags []string
	}{{"mode=plain", nil}, {"mode=fence", []string{"--fence"}}} {
		b.Run(mode.name, func(b *testing.B) {
			var with, without []time.Duration
			for b.Loop() {
				without = append(without, run(command[0], command[1:]...))
				with = append(with, run(program, slices.Concat([]string{"run"}, mode.flags, []string{"nightly-export", "--"}, command)...))
			}
			slices.Sort(with)
			slices.Sort(without)
			at := func(all []time.Duration, percent int) float64 {
				return float64(all[(len(all)-1)*percent/100].Microseconds()) / 1000
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(at(without, 50), "without-ms")
			b.ReportMetric(at(with, 50), "with-ms")
			b.ReportMetric(at(with, 50)-at(without, 50), "added-ms")
			b.ReportMetric(at(with, 95)-at(without, 50), "added-p95-ms")
		})
	}
}
