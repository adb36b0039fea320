//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "batchexport: freezes processes with SIGSTOP, which only Unix systems have; "+
		"run it on Linux, macOS or in WSL")
	os.Exit(1)
}
