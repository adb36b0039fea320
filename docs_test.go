package pgadvisory_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	testName   = regexp.MustCompile(`\bTest[A-Za-z0-9_]+\b`)
	testFunc   = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	testPlace  = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`\\s+\\(`([a-z/_0-9]+_test\\.go)`\\)")
	caseNumber = regexp.MustCompile(`(?m)^\*\*Case (R?\d+)\.`)
)

// fieldCases are the numbers of the reports on the page, which tests name.
var fieldCases = strings.Fields("1 3 4 5 6 7 8 9 11 12 13 14 15 16 17 19 20 22 23 24 25 27 28 29 30 31 32 34 35 37 38 39 40 42 43 44 " +
	"45 47 48 49 50 51 52 53 54 55 56 58 59 60 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 81 82 83 85 86 87 88 89 90 91 92 93 " +
	"94 96 97 98 99 100 101 102 103 105 106 107 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 128 129 130 " +
	"132 133 134 135 136 137 139 141 142 143 144 145 146 149 150 151 152 153 156 157 158 159 162 163 164 165 " +
	"R1 R2 R3 R4 R6 R7 R8 R10 R11 R12 R14 R15 R16 R18 R19 R21 R22 R23 R24 R25")

// The page names a test for what it claims; each of them is there, in the file
// that is named.
func TestFieldCases_namesTestsThatAreThere(t *testing.T) {
	t.Parallel()
	defined := map[string][]string{} // files, by test
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range testFunc.FindAllStringSubmatch(string(text), -1) {
			defined[match[1]] = append(defined[match[1]], filepath.ToSlash(path))
		}
		return err
	}))
	page := fieldCasesPage(t)
	names := testName.FindAllString(page, -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Contains(t, defined, name)
	}
	places := testPlace.FindAllStringSubmatch(page, -1)
	require.Len(t, places, len(names), "each with its file")
	for _, place := range places {
		require.Contains(t, defined[place[1]], place[2], place[1])
	}
}

func TestFieldCases_hasEachCaseOnce(t *testing.T) {
	t.Parallel()
	var numbers []string
	for _, match := range caseNumber.FindAllStringSubmatch(fieldCasesPage(t), -1) {
		numbers = append(numbers, match[1])
	}
	require.Equal(t, fieldCases, numbers)
}

func fieldCasesPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("docs/field-cases.md")
	require.NoError(t, err)
	return string(page)
}
