//go:build !unix

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "redislock needs signals that stop a process, which this system does not have")
	os.Exit(1)
}
