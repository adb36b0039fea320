package cli

import (
	"regexp"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
)

// inGo are words of the packages' errors for those who write Go, and what users of
// the command know instead.
var inGo = []struct {
	words   *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`^(advisory|fencing|migrations): ((up|down|version|verify|inspect|open): )?`), ""},
	{regexp.MustCompile(`run migrations\.Up: `), ""}, // advice says it
	{regexp.MustCompile(`migrations\.Up`), "pgadvisory migrate up"},
	{regexp.MustCompile(`fencing\.Verify`), "pgadvisory verify"},
	{regexp.MustCompile(`(set )(Config\.)?SessionPooler(: true)?`), "use --session-pooler"},
	{regexp.MustCompile(`(Config\.)?SessionPooler(: true)?`), "--session-pooler"},
}

// message is an error as people are told of it.
func message(err error) string {
	text := connect.Describe(err)
	for _, in := range inGo {
		text = in.words.ReplaceAllString(text, in.instead)
	}
	if hint := advice(err); hint != "" {
		text += "\n" + hint
	}
	return text
}
