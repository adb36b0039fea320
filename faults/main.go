//go:build unix

// Command faults shows that locks and fencing hold while processes are stopped
// and killed, connections break and servers restart and fail over: workers write
// through the library, a nemesis does harm, and a checker reads what happened.
//
//	go run ./faults -seed 1 -rounds 100
//
// It starts the servers that it needs from installed binaries. It exits with 1 if
// something was violated and with 2 if it could not run. docs/reliability.md says
// what is done and what is checked.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/pgadvisory/pgadvisory/faults/internal/campaign"
	"github.com/pgadvisory/pgadvisory/faults/internal/nemesis"
	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
	"github.com/pgadvisory/pgadvisory/internal/childproc"
)

func main() {
	childproc.Main(worker.Roles)
	o := campaign.Options{Weights: nemesis.All}
	flag.Uint64Var(&o.Seed, "seed", 0, "what to do is chosen from this; 0 means one that is drawn and printed")
	flag.IntVar(&o.Rounds, "rounds", 2000, "how many faults")
	flag.DurationVar(&o.Duration, "duration", 0, "begin no round after this time; 0 means no limit")
	flag.IntVar(&o.Segment, "segment", 0, fmt.Sprintf("run only this segment, of %d rounds; 0 means all", campaign.DefaultSegmentRounds))
	flag.IntVar(&o.Workers, "workers", 5, "how many processes")
	flag.IntVar(&o.Keys, "keys", 3, "how many locks they want in PostgreSQL, 26 at most")
	flag.IntVar(&o.Leased, "leased", 1, "how many locks besides they want in Redis, 26 at most")
	flag.StringVar(&o.Dir, "dir", os.TempDir(), "where the history of a segment with a violation is kept")
	flag.BoolVar(&o.Keep, "keep", false, "keep the histories of the others too")
	flag.Func("only", "only these faults, with commas between them", choose(&o, "only", nemesis.Only))
	flag.Func("without", "all faults but these, with commas between them", choose(&o, "without", nemesis.Without))
	judge := flag.String("judge", "", "run nothing, and check this history again")
	flag.Parse()
	if flag.NArg() > 0 || o.Rounds < 1 || o.Workers < 2 || o.Keys < 0 || o.Keys > 26 || o.Leased < 0 || o.Leased > 26 || o.Keys+o.Leased < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if *judge != "" {
		os.Exit(again(*judge))
	}
	if o.Seed == 0 {
		o.Seed = 1 + uint64(rand.Uint32())
	}
	os.Exit(run(o))
}

// choose is a flag that has the faults chosen from among all.
func choose(o *campaign.Options, name string, from func([]string) (nemesis.Weights, error)) func(string) error {
	return func(text string) (err error) {
		o.Weights, err = from(strings.Split(text, ","))
		o.Args = fmt.Sprintf(" -%s %s", name, text)
		return err
	}
}

func run(o campaign.Options) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Printf("faults: seed %d, %d rounds, %d workers, %d keys and %d in Redis\n", o.Seed, o.Rounds, o.Workers, o.Keys, o.Leased)
	report, err := campaign.Run(ctx, o, os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "faults: seed %d: %v\n", o.Seed, err)
		return 2
	}
	fmt.Print(report.Text(o.Seed))
	if len(report.Violations) > 0 {
		return 1
	}
	return 0
}

// again judges a history of an earlier run.
func again(path string) int {
	isGood, err := campaign.Judge(path, os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "faults:", err)
		return 2
	case !isGood:
		return 1
	default:
		return 0
	}
}
