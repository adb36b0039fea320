//go:build unix

package pgadvisory_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// What the README shows runs: each of its Go snippets stands in an example.
func TestReadme_snippetsAreFromExamples(t *testing.T) {
	t.Parallel()
	var examples strings.Builder
	for _, pattern := range []string{"advisory/example_*_test.go", "fencing/example_*_test.go", "redislease/example_*_test.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			examples.WriteString(unindent(string(text)))
		}
	}
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	snippets := goBlock.FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, snippets)
	for _, snippet := range snippets {
		if !strings.Contains(examples.String(), unindent(snippet[1])) {
			t.Errorf("no example has:\n%s", snippet[1])
		}
	}
}

// unindent removes what differs between a snippet and its place in a function.
func unindent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, "\t"))
	}
	return b.String()
}
