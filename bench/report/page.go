package main

import (
	"context"
	_ "embed" // for tail
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchmath"
)

const head = `# Performance

Measured beside what one would take instead, on one machine, each section in one run: compare the ratios, and not the times with those of other
machines. Each figure is the median of %s; the spread is that of its 95 %% confidence interval. A ratio is to the line in bold, and in
brackets where the difference is not significant (p >= 0.05, U test). All processes, servers and clients, share the machine, so that
a server's work is seen in full and a network's time not at all.

` + "`go run ./report`" + ` in [bench](../bench) runs all of it and writes this page. The results are in [performance](performance), in the
format that benchstat reads.

`

// tail is what was measured by hand.
//
//go:embed tail.md
var tail string

// write writes the page and the charts from the results that are there.
func write(docs, folder string) error {
	var page strings.Builder
	var machine map[string]string
	fewest, most := 1<<30, 0
	all := map[string][]*row{}
	for _, w := range workloads {
		rows, where, err := read(w, filepath.Join(folder, w.name+".txt"))
		if err != nil {
			return err
		}
		if rows == nil {
			continue
		}
		machine, all[w.name] = where, rows
		for _, r := range rows {
			n := len(r.values[w.unit])
			fewest, most = min(fewest, n), max(most, n)
		}
		section(&page, w, rows)
		if err := chart(w, rows, filepath.Join(folder, w.name+".svg")); err != nil {
			return err
		}
		fmt.Fprintf(&page, "![%s](performance/%s.svg)\n\n", w.title, w.name)
	}
	runs := fmt.Sprintf("%d runs", fewest)
	if most > fewest {
		runs = fmt.Sprintf("%d to %d runs", fewest, most)
	}
	text := fmt.Sprintf(head, runs) + where(machine) + goalTable(all) + page.String() + tail
	return os.WriteFile(filepath.Join(docs, "performance.md"), []byte(strings.TrimRight(text, "\n")+"\n"), 0o644)
}

// where says on what it was measured.
func where(machine map[string]string) string {
	return fmt.Sprintf("Written on %s, on %s with %d CPUs, %s/%s, %s; %s; %s.\n\n", time.Now().Format(time.DateOnly),
		machine["cpu"], runtime.NumCPU(), machine["goos"], machine["goarch"], runtime.Version(),
		version("postgres"), version("redis-server"))
}

func version(program string) string {
	out, err := exec.CommandContext(context.Background(), program, "--version").Output()
	if err != nil {
		return "without " + program
	}
	line, _, _ := strings.Cut(string(out), "\n")
	if i := strings.Index(line, " sha="); i > 0 {
		line = line[:i]
	}
	return strings.TrimSpace(line)
}

func section(page *strings.Builder, w workload, rows []*row) {
	extra := extraUnits(rows)
	fmt.Fprintf(page, "## %s\n\n| | %s | spread | ratio |", w.title, w.label)
	for _, unit := range extra {
		fmt.Fprintf(page, " %s |", strings.ReplaceAll(unit, "p99-sec", "p99, µs"))
	}
	fmt.Fprintf(page, "\n|---|---:|---:|---:|%s\n", strings.Repeat("---:|", len(extra)))
	for _, r := range rows {
		name := strings.TrimSpace(r.group + " " + r.how)
		ratio := fmt.Sprintf("%.2f", r.ratio)
		switch {
		case r.how == w.base:
			name, ratio = "**"+name+"**", "1"
		case r.compared.P >= 0.05:
			ratio = "(" + ratio + ")"
		}
		fmt.Fprintf(page, "| %s | %s | %s | %s |", name, number(r.median.Center*w.scale), r.median.PctRangeString(), ratio)
		for _, unit := range extra {
			value := median(r.values[unit])
			if unit == "p99-sec" {
				value *= 1e6
			}
			fmt.Fprintf(page, " %s |", number(value))
		}
		page.WriteString("\n")
	}
	page.WriteString("\n")
}

// extraUnits are what else is shown of a workload.
func extraUnits(rows []*row) (units []string) {
	for _, unit := range []string{"p99-sec", "allocs/op", "heap-B/lock"} {
		if slices.ContainsFunc(rows, func(r *row) bool { return len(r.values[unit]) > 0 }) {
			units = append(units, unit)
		}
	}
	return units
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(append([]float64(nil), values...), &benchmath.DefaultThresholds), confidence).Center
}

func number(v float64) string {
	switch {
	case v == 0:
		return ""
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}
