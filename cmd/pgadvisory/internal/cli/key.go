package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/lockview"
)

const keyLong = `key prints the number of the lock NAME and how to take the same lock from psql,
or from any other language, and how pg_locks shows it. It does not connect.

The number is the server's hashtextextended('NAME', 0), for a server whose
encoding is UTF8. It does not change between versions.`

const keyExample = `  pgadvisory key nightly-export
  psql -c "SELECT pg_try_advisory_lock($(pgadvisory key --number nightly-export))"
  pgadvisory key --json nightly-export | jq .number`

// keyInfo is what there is to say of a name.
type keyInfo struct {
	Name    string `json:"name"`
	Number  int64  `json:"number"`
	Lock    string `json:"lock"`
	TryLock string `json:"try_lock"`
	Unlock  string `json:"unlock"`
	PgLocks string `json:"pg_locks"`
}

func keyInfoOf(name string) keyInfo {
	number := lockview.NumberOf(name)
	call := func(function string) string {
		// With their schema: another function of that name could fit better.
		return fmt.Sprintf("SELECT pg_catalog.%s(pg_catalog.hashtextextended(%s, 0));", function, literal(name))
	}
	return keyInfo{
		Name: name, Number: number,
		Lock: call("pg_advisory_lock"), TryLock: call("pg_try_advisory_lock"), Unlock: call("pg_advisory_unlock"),
		PgLocks: fmt.Sprintf("SELECT * FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND classid = %d AND objid = %d AND objsubid = 1;",
			uint32(number>>32), uint32(number)),
	}
}

// literal is a text in SQL, in one line and whatever standard_conforming_strings is.
func literal(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r == '\\' || !unicode.IsPrint(r) }) < 0 {
		return "'" + strings.ReplaceAll(text, "'", "''") + "'"
	}
	var b strings.Builder
	b.WriteString("E'")
	for _, r := range text {
		switch {
		case r == '\'' || r == '\\':
			b.WriteString(strings.Repeat(string(r), 2))
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + "'"
}

func (a *app) key() *cobra.Command {
	var asJSON, onlyNumber bool
	cmd := &cobra.Command{
		Use: "key NAME", GroupID: groupLocks, Args: exactly(1),
		Short: "Print a lock's number, its SQL and its form in pg_locks",
		Long:  keyLong, Example: keyExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName(args[0]); err != nil {
				return err
			}
			info := keyInfoOf(args[0])
			switch {
			case asJSON:
				return printJSON(cmd.OutOrStdout(), info)
			case onlyNumber:
				return printf(cmd, "%d\n", info.Number)
			default:
				return printf(cmd, "name      %s\nnumber    %d\nlock      %s\ntry       %s\nunlock    %s\npg_locks  %s\n",
					lockview.Printable(info.Name), info.Number, info.Lock, info.TryLock, info.Unlock, info.PgLocks)
			}
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&onlyNumber, "number", false, "print the number only")
	cmd.MarkFlagsMutuallyExclusive("json", "number")
	return cmd
}

func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// checkName refuses what can't name a lock, before anything is asked.
func checkName(name string) error {
	switch {
	case name == "":
		return usage("the name is empty")
	case !utf8.ValidString(name):
		return usage("the name %q is not valid UTF-8", name)
	default:
		return nil
	}
}
