package cli

import (
	"os"

	"golang.org/x/term"
)

// output is stdout. It remembers the first error, so that it is reported also
// where a subcommand, or the library, does not look at it.
type output struct {
	file *os.File
	err  error
}

func (o *output) Write(text []byte) (int, error) {
	n, err := o.file.Write(text)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// size is that of the terminal, if it is one.
func (o *output) size() (width, height int, isTerminal bool) {
	fd := int(o.file.Fd())
	if !term.IsTerminal(fd) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(fd)
	if err != nil {
		width, height = 0, 0
	}
	return width, height, true
}
