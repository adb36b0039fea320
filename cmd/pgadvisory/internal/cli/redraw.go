package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/lockview"
)

// redraw replaces what a terminal shows; elsewhere it appends.
func redraw(out io.Writer, rows []lockview.Row, now time.Time) error {
	var b bytes.Buffer
	width, height, isTerminal := terminalSize(out)
	table := lockview.Table(rows, width)
	if !isTerminal {
		fmt.Fprintf(&b, "%s\n%s\n", now.Format(time.DateTime), table)
		_, err := out.Write(b.Bytes())
		return err
	}
	lines := slices.Insert(strings.Split(strings.TrimRight(table, "\n"), "\n"), 0, now.Format(time.DateTime), "")
	if height > 1 && len(lines) > height-1 {
		more := len(lines) - (height - 2)
		lines = append(lines[:height-2], fmt.Sprintf("... and %d more", more))
	}
	b.WriteString("\x1b[H") // to the first line; each is cleared from its end on, and what is below
	for _, line := range lines {
		b.WriteString(lockview.Cut(line, width) + "\x1b[K\r\n")
	}
	b.WriteString("\x1b[J")
	_, err := out.Write(b.Bytes())
	return err
}

// terminalSize is 0 by 0 where there is no terminal, or one that doesn't tell.
func terminalSize(out io.Writer) (width, height int, isTerminal bool) {
	if o, ok := out.(*output); ok {
		return o.size()
	}
	return 0, 0, false
}

// joinWatch makes one argument of --watch and the time after it. The library takes
// what follows a flag that needs no value for an argument of its own.
func joinWatch(args []string) []string {
	joined := make([]string, 0, len(args))
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		if arg == "--watch" && i+1 < len(args) && slices.Contains(joined, "ls") && new(seconds).Set(args[i+1]) == nil {
			i++
			arg += "=" + args[i]
		}
		joined = append(joined, arg)
	}
	return joined
}
