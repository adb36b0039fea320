package fencing

import "strings"

// quoteIdent quotes a name where SQL needs it. It errs on the side of quotes.
func quoteIdent(name string) string {
	plain := name != "" && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_'
	}) < 0 && (name[0] < '0' || name[0] > '9')
	if plain {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
