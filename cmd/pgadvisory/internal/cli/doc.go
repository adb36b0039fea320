// Package cli is the command line: a file for each subcommand.
package cli
