package otel_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	goBlock  = regexp.MustCompile("(?s)```go\n(.*?)```")
	ourNames = regexp.MustCompile(`pgadvisory\.(lock|hold|lost|lead|write|backend)(\.[a-z]+)*`)
)

// What the README shows runs: each of its Go snippets stands in the example.
func TestReadme_snippetsAreFromTheExample(t *testing.T) {
	t.Parallel()
	example := unindent(read(t, "example_observer_test.go"))
	snippets := goBlock.FindAllStringSubmatch(read(t, "README.md"), -1)
	require.NotEmpty(t, snippets)
	for _, snippet := range snippets {
		require.Contains(t, example, unindent(snippet[1]))
	}
}

// A name that is changed in one place is missed by whoever has read another.
func TestDoc_namesWhatIsReported(t *testing.T) {
	t.Parallel()
	source := read(t, "observer.go") + read(t, "attributes.go") + read(t, "instruments.go") + read(t, "counts.go")
	doc, readme := read(t, "doc.go"), read(t, "README.md")
	for _, name := range ourNames.FindAllString(source, -1) {
		require.Contains(t, doc, name)
	}
	for _, name := range ourNames.FindAllString(readme+doc, -1) {
		require.Contains(t, source, `"`+name+`"`)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

// unindent removes what differs between a snippet and its place in a function.
func unindent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, "\t"))
	}
	return b.String()
}
