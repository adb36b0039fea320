package main

import (
	"fmt"
	"strings"
)

// goal is what one way to do a workload may cost, beside another one or by itself.
type goal struct {
	what       string
	workload   string
	group, how string
	base       string  // none: the median itself is compared, in µs
	limit      float64 // at most
	beside     string  // the base, in words
}

// goals are those of fenced writes: people leave a guard off when it costs.
var goals = []goal{
	{"`Exec`, durable", "Write", "rows=1/writers=1", "guarded-Exec", "unguarded-alone", 1.15, "the statement alone"},
	{"`Exec`, network of 0.5 ms", "Write", "rows=1/writers=1/network=0.5ms", "guarded-Exec", "unguarded-alone", 1.05, "the statement alone"},
	{"`Exec`, not durable", "Write", "rows=1/writers=1/durable=no", "guarded-Exec", "unguarded-alone", 2, "the statement alone"},
	{"`Exec`, durable", "Write", "rows=1/writers=1", "guarded-Exec", "unguarded", 0.95, "BEGIN, INSERT, COMMIT"},
	{"`Exec`, network of 0.5 ms", "Write", "rows=1/writers=1/network=0.5ms", "guarded-Exec", "unguarded", 0.45, "BEGIN, INSERT, COMMIT"},
	{"`InTx`, durable", "Write", "rows=1/writers=1", "guarded-InTx", "unguarded", 1.1, "BEGIN, INSERT, COMMIT"},
	{"`InTx`, network of 0.5 ms", "Write", "rows=1/writers=1/network=0.5ms", "guarded-InTx", "unguarded", 0.75, "BEGIN, INSERT, COMMIT"},
	{"`InTx`, 8 writers", "Write", "rows=1/writers=8", "guarded-InTx", "unguarded", 1 / 0.85, "BEGIN, INSERT, COMMIT"},
	{"a guarded statement, µs of the server", "BackendCPU", "", "guarded", "", 10, ""},
	{"the same by a column, µs of the server", "BackendCPU", "", "guarded-by", "", 20, ""},
	{"1,000 resources stamped and written, µs of the server", "BackendCPU", "", "stamp-1000-and-write", "", 300000, ""},
	{"COPY of a million rows", "Bulk", "do=COPY", "guarded", "unguarded", 1.1, "unguarded"},
	{"the same by a column, of 100 resources", "Bulk", "do=COPY", "guarded-by", "unguarded", 1.3, "unguarded"},
	{"`Fencer.TryLock` and `Unlock`", "Fenced", "", "Fencer", "pgxpool-same-write", 1.15, "the same durable write"},
}

// goalTable compares what was measured with the goals.
func goalTable(all map[string][]*row) string {
	var page strings.Builder
	page.WriteString("## What a fence costs, and what it may cost\n\n| | measured | goal | beside |\n|---|---:|---:|---|\n")
	for _, g := range goals {
		of, base := find(all[g.workload], g.group, g.how), find(all[g.workload], g.group, g.base)
		if of == nil || g.base != "" && base == nil {
			continue
		}
		value := of.median.Center * 1e6
		if base != nil {
			value = of.median.Center / base.median.Center
		}
		measured := number(value)
		if value > g.limit {
			measured = "**" + measured + "**"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", g.what, measured, number(g.limit), g.beside)
	}
	page.WriteString("\nIn bold is what misses its goal.\n\n")
	return page.String()
}

func find(rows []*row, group, how string) *row {
	for _, r := range rows {
		if r.group == group && r.how == how && how != "" {
			return r
		}
	}
	return nil
}
