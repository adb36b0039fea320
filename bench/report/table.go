package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

const confidence = 0.95

// row is one way to do a workload.
type row struct {
	group, how string // the name without how=, and what that is
	values     map[string][]float64
	median     benchmath.Summary
	ratio      float64 // to the base of the group
	compared   benchmath.Comparison
}

// read returns the rows in the order in which they were run.
func read(w workload, file string) ([]*row, map[string]string, error) {
	f, err := os.Open(file)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, nil
		}
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	var rows []*row
	at, machine := map[string]*row{}, map[string]string{}
	for r := benchfmt.NewReader(f, file); r.Scan(); {
		result, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		for _, key := range []string{"cpu", "goos", "goarch"} {
			machine[key] = result.GetConfig(key)
		}
		name := string(result.Name.Full())
		if i := strings.LastIndexByte(name, '-'); i > 0 { // GOMAXPROCS
			name = name[:i]
		}
		if at[name] == nil {
			group, how, _ := strings.Cut(name, "how=")
			_, group, _ = strings.Cut(group, "/")
			at[name] = &row{group: strings.TrimSuffix(group, "/"), how: how, values: map[string][]float64{}}
			rows = append(rows, at[name])
		}
		for _, v := range result.Values {
			at[name].values[v.Unit] = append(at[name].values[v.Unit], v.Value)
		}
	}
	return rows, machine, compare(w, rows)
}

// compare works out medians, and ratios to the base.
func compare(w workload, rows []*row) error {
	sample := func(r *row) *benchmath.Sample {
		return benchmath.NewSample(append([]float64(nil), r.values[w.unit]...), &benchmath.DefaultThresholds)
	}
	bases := map[string]*row{}
	for _, r := range rows {
		if len(r.values[w.unit]) == 0 {
			return fmt.Errorf("%s, %s: nothing in %s", w.name, r.how, w.unit)
		}
		r.median = benchmath.AssumeNothing.Summary(sample(r), confidence)
		if r.how == w.base {
			bases[r.group] = r
		}
	}
	for _, r := range rows {
		base := bases[r.group]
		if base == nil {
			return fmt.Errorf("%s: no %s in %q", w.name, w.base, r.group)
		}
		r.ratio = r.median.Center / base.median.Center
		r.compared = benchmath.AssumeNothing.Compare(sample(base), sample(r))
	}
	return nil
}
