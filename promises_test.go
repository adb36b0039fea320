package pgadvisory_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// all is the first group of each match.
func all(pattern, text string) []string {
	var found []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	return found
}

// The versions that the README promises are those of the legs of CI, and of the
// module.
func TestReadme_namesTheVersionsThatAreTested(t *testing.T) {
	t.Parallel()
	readme := readText(t, "README.md")
	tested := all(`(?m)^\s+- (?:server|whole):(\d+)$`, readText(t, ".github/workflows/ci.yml"))
	slices.Sort(tested)
	require.NotEmpty(t, tested)
	last := len(tested) - 1
	require.Contains(t, readme, "CI tests on "+strings.Join(tested[:last], ", ")+" and "+tested[last]+".")
	require.Contains(t, readme, "PostgreSQL "+tested[0]+" and later")
	language := all(`(?m)^go (\d+\.\d+)`, readText(t, "go.mod"))
	require.Contains(t, readme, "Go "+language[0]+" and later, pgx v5")
}

// What a program compiles that imports the packages.
func TestReadme_importersCompileLittle(t *testing.T) {
	t.Parallel()
	const own, pgx = `github.com/pgadvisory/pgadvisory/`, `github.com/jackc/|golang.org/x/`
	for pattern, packages := range map[string][]string{
		`^(` + own + `|` + pgx + `)`: {"./advisory", "./fencing"},
		`^(` + own + `|` + pgx + `|github.com/(pressly/goose/v3|mfridman/interpolate|sethvargo/go-retry)|go.uber.org/multierr)`: {"./migrations"},
	} {
		out, err := exec.Command("go", append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)...).Output()
		require.NoError(t, err)
		for name := range strings.FieldsSeq(string(out)) {
			require.Regexp(t, pattern, name, "%v", packages)
		}
	}
}

// Each command of the README has been run, as it stands there: by CI, by a script
// of the command's tests, or on a terminal.
func TestReadme_commandsAreRun(t *testing.T) {
	t.Parallel()
	var run strings.Builder
	for _, path := range []string{".ci/run", "cmd/pgadvisory/testdata/script/readme.txt", "cmd/pgadvisory/terminal_linux_test.go"} {
		run.WriteString(readText(t, path))
	}
	lines := all("(?m)^((?:go (?:run|test)|pgadvisory) .*)$", readText(t, "README.md"))
	require.NotEmpty(t, lines)
	for _, line := range lines {
		line, _, _ = strings.Cut(line, " #")
		if !strings.Contains(run.String(), strings.TrimSpace(line)) {
			t.Errorf("nothing runs: %s", line)
		}
	}
}
