//go:build unix

package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// helperVar tells the test binary which helper it is; see TestMain.
const helperVar = "PGADVISORY_TEST_HELPER"

// helpers are what commands do that no shell can.
var helpers = map[string]func(args []string){
	// escape sets its user ID to root if it can, so that the user who started it may
	// not signal it. It writes its process ID to a file and waits until another file
	// exists.
	"escape": func(args []string) {
		_ = syscall.Setuid(0) // it can't without new privileges
		awaitRelease(args)
	},
	// leaves the group, with a zombie of its own there, and waits as above.
	"zombie": func(args []string) {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exit 0"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		exitIf(err)
		_, err = syscall.Setsid()
		exitIf(err)
		for alive(pid) {
			<-time.After(5 * time.Millisecond)
		}
		awaitRelease(args)
	},
}

func exitIf(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// awaitRelease writes the process id to the first file and waits for the second.
func awaitRelease(files []string) {
	exitIf(os.WriteFile(files[0], []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644))
	for {
		if _, err := os.Stat(files[1]); err == nil {
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}
