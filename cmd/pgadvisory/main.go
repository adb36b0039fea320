// Command pgadvisory is flock(1) for PostgreSQL: it runs a command while it holds
// an advisory lock, shows who holds which, and installs and checks fencing.
// docs/command.md is its manual.
package main

import (
	"os"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/cli"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/supervise"
)

func main() {
	supervise.Main()
	os.Exit(cli.Main(os.Args[1:]))
}
