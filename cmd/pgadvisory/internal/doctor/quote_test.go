package doctor_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/doctor"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// names are those that roles can have.
var names = []string{
	"app", "v0; touch x; #", "-rf", "--yes", "it's", `back\slash`, `"quoted"`, "$(touch x)", "`touch x`", "$HOME", "a b", "*", "~", "!1",
	"line\nbreak", "';touch x;'\n", "\x1b[31mred", "tab\t", "ünïcode", "日本", "\u202eevil", "\\'\n;touch x;", "=x", "a=b", "{a,b}", "#", "%s",
}

func TestShellArgument_isOneWordOfEveryShell(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, shell := range []string{"sh", "dash", "bash", "zsh", "ksh"} {
		path, err := exec.LookPath(shell)
		if err != nil {
			continue // sh is everywhere
		}
		tried++
		for _, name := range names {
			argument := doctor.ShellArgument(name)
			require.NotContains(t, argument, "\n")
			require.NotContains(t, argument, "\x1b")
			require.Equal(t, strings.HasPrefix(name, "-"), strings.HasPrefix(argument, "-- "), argument)
			cmd := exec.CommandContext(t.Context(), path, "-c", "set -- "+doctor.ShellWord(name)+"x\nprintf '%s|%s' $# \"$1\"")
			cmd.Dir = t.TempDir()
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s: %s", shell, argument, out)
			if name == "~" || strings.HasPrefix(doctor.ShellWord(name), "$'") && (shell == "sh" || shell == "dash") {
				require.True(t, strings.HasPrefix(string(out), "1|"), "%s: %s: %s", shell, argument, out)
				continue // another word, and only a word
			}
			require.Equal(t, "1|"+name+"x", string(out), "%s: %s", shell, argument)
		}
	}
	require.Positive(t, tried)
}

func TestIdentifier_isThatOfTheServer(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Conn(t)
	for _, name := range names {
		identifier := doctor.Identifier(name)
		require.NotContains(t, identifier, "\n")
		require.NotContains(t, identifier, "\x1b")
		rows, err := conn.Query(t.Context(), `SELECT 1 AS `+identifier)
		require.NoError(t, err, identifier)
		require.Equal(t, name, rows.FieldDescriptions()[0].Name)
		rows.Close()
	}
}
