// Command report runs the benchmarks several times in turn and writes what came
// out of it: the results in the format of the Go tools, a page with one table for
// each workload, and charts.
//
//	go run ./report                      # all of it, from the module's folder
//	go run ./report -only Loss           # runs these only, and keeps the others' results
//	go run ./report -rounds 0            # writes the page anew, and runs nothing
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	only := flag.String("only", "", "run the benchmark of this name only")
	rounds := flag.Int("rounds", 6, "how often to run each benchmark")
	docs := flag.String("docs", "../docs", "the folder to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := report(ctx, *only, *rounds, *docs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func report(ctx context.Context, only string, rounds int, docs string) error {
	folder := filepath.Join(docs, "performance")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, w := range workloads {
		if only != "" && only != w.name {
			continue
		}
		if rounds > 0 {
			if err := measure(ctx, w, rounds, filepath.Join(folder, w.name+".txt")); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return write(docs, folder)
}
