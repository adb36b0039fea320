package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// plainFlags is a list of flags as people write them. The library shows
// --flag[=true|false] for those that need no value.
func plainFlags(usages string) string {
	const value = "[=true|false]"
	return strings.ReplaceAll(usages, value, strings.Repeat(" ", len(value)))
}

// exactly is for a subcommand that takes as many arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		what := "arguments"
		if n == 1 {
			what = "argument"
		}
		return usage("expected %d %s, got %d: %s", n, what, len(args), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	}
}

// seconds is a flag for a time, to which flock's plain seconds are one, too.
type seconds struct{ time.Duration }

func (s *seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if n, plain := strconv.ParseFloat(text, 64); plain == nil {
		d, err = time.ParseDuration(strconv.FormatFloat(n, 'f', -1, 64) + "s")
	}
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a time such as 30s, 1h30m or 30", text)
	case d < 0:
		return fmt.Errorf("%v is negative", d)
	}
	s.Duration = d
	return nil
}

func (s *seconds) String() string {
	if s.Duration == 0 {
		return ""
	}
	return s.Duration.String()
}

func (*seconds) Type() string { return "time" }
