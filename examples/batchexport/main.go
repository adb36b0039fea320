//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

func main() {
	if s, ok := settingsFromEnv(); ok {
		os.Exit(runReplica(s))
	}
	// Linux kills the replicas when the thread that started them ends (see
	// process_linux.go). This one stays for as long as main does.
	runtime.LockOSThread()
	os.Exit(runMain())
}

// options are the command line.
type options struct {
	keep      string
	unguarded bool
}

func runMain() int {
	var o options
	flag.StringVar(&o.keep, "keep", "", "write the files to this `folder`, which must be empty or missing, and keep them")
	flag.BoolVar(&o.unguarded, "unguarded", false, "leave the fence out, to see what it is for; the run fails")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "batchexport: unexpected argument %q\n", flag.Arg(0))
		flag.Usage()
		return 2
	}

	// A reader of the output that goes away is an error of the next write, and
	// not the end of this process: there is something to tidy up.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	tl := newTimeline(os.Stdout, abort)

	if err := run(ctx, o, tl); err != nil {
		fmt.Fprintf(os.Stderr, "batchexport: %v\n", err)
		return 1
	}
	return 0
}
