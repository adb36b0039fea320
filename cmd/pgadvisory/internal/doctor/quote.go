package doctor

import (
	"fmt"
	"strings"
	"unicode"
)

// shellWord is a text as one word of a shell's command line, in one line and without
// what a terminal would take for more than text.
//
// What can't be printed is spelled as in $'\n'. A shell that does not know this form
// gets another word, and never another command: nothing in it ends the quotes.
func shellWord(text string) string {
	switch {
	case text != "" && strings.IndexFunc(text, isSpecial) < 0:
		return text
	case strings.IndexFunc(text, isUnprintable) < 0:
		return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for _, r := range text {
		switch {
		case r == '\'' || r == '\\' || isUnprintable(r):
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		default:
			b.WriteRune(r)
		}
	}
	b.WriteString("'")
	return b.String()
}

// shellArgument is a text as an argument that is no flag: it comes with the -- that
// says so where it looks like one.
func shellArgument(text string) string {
	if strings.HasPrefix(text, "-") {
		return "-- " + shellWord(text)
	}
	return shellWord(text)
}

func isSpecial(r rune) bool {
	return r != '_' && r != '-' && r != '.' && r != '/' && r != ':' && (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r))
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }

// identifier is a name in SQL, in one line like shellWord.
func identifier(name string) string {
	if strings.IndexFunc(name, isUnprintable) < 0 {
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	var b strings.Builder
	b.WriteString(`U&"`)
	for _, r := range name {
		switch {
		case r == '"':
			b.WriteString(`""`)
		case r == '\\':
			b.WriteString(`\\`)
		case isUnprintable(r):
			fmt.Fprintf(&b, `\+%06X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteString(`"`)
	return b.String()
}
