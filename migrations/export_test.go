package migrations_test

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

// frames are what the formats add to the SQL.
var frames = map[string]*regexp.Regexp{
	migrations.Goose:         regexp.MustCompile(`(?m)^-- \+goose (Up|Down|StatementBegin|StatementEnd)\n`),
	migrations.GolangMigrate: regexp.MustCompile(`^$`),
	migrations.Tern:          regexp.MustCompile(`(?m)^---- create above / drop below ----\n`),
	migrations.SQL:           regexp.MustCompile(`(?m)^(\\set ON_ERROR_STOP on|BEGIN;|COMMIT;)\n`),
}

func TestExport_hasTheSameSQLInAllFormats(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	require.Len(t, names, int(newest))
	want := ""
	for _, name := range names {
		content, err := migrations.FS.ReadFile(name)
		require.NoError(t, err)
		want += essence(frames[migrations.Goose].ReplaceAllString(string(content), ""))
	}
	require.Len(t, frames, len(migrations.Formats()))
	for _, format := range migrations.Formats() {
		files, err := migrations.Export(format)
		require.NoError(t, err)
		require.True(t, slices.IsSortedFunc(files, func(a, b migrations.File) int { return strings.Compare(a.Name, b.Name) }))
		got := ""
		for i, file := range files {
			if strings.HasSuffix(file.Name, ".down.sql") { // comes before that of its up
				file = files[i+1]
			} else if strings.HasSuffix(file.Name, ".up.sql") {
				file = files[i-1]
			}
			got += essence(frames[format].ReplaceAllString(string(file.Content), ""))
		}
		require.Equal(t, want, got, format)
	}
}

// essence leaves out the empty lines.
func essence(sql string) string {
	return regexp.MustCompile(`\n\n+`).ReplaceAllString("\n"+sql+"\n", "\n")[1:]
}

func TestExport_namesTheFilesAsTheToolsWantThem(t *testing.T) {
	t.Parallel()
	for format, want := range map[string][]string{
		migrations.Goose:         {"00001_tokens.sql", "00002_guards.sql"},
		migrations.GolangMigrate: {"000001_tokens.down.sql", "000001_tokens.up.sql", "000002_guards.down.sql", "000002_guards.up.sql"},
		migrations.Tern:          {"001_tokens.sql", "002_guards.sql"},
		migrations.SQL:           {"00001_tokens.down.sql", "00001_tokens.up.sql", "00002_guards.down.sql", "00002_guards.up.sql"},
	} {
		files, err := migrations.Export(format)
		require.NoError(t, err)
		var names []string
		for _, file := range files {
			names = append(names, file.Name)
			// It would be a template for tern.
			require.NotContains(t, string(file.Content), "{{", fmt.Sprint(format, file.Name))
		}
		require.Equal(t, want, names)
	}
	_, err := migrations.Export("flyway")
	require.ErrorContains(t, err, `there is no format "flyway"; there are goose, golang-migrate, tern, sql`)
}

// What goose marks as one statement must be that for the others too: each file
// is balanced by itself.
func TestExport_keepsStatementsWhole(t *testing.T) {
	t.Parallel()
	for _, format := range migrations.Formats() {
		files, err := migrations.Export(format)
		require.NoError(t, err)
		for _, file := range files {
			require.Zero(t, strings.Count(string(file.Content), "$$")%2, file.Name)
			require.True(t, format == migrations.Goose || strings.HasSuffix(string(file.Content), ";\n"), file.Name)
			require.Equal(t, format == migrations.Goose, strings.Contains(string(file.Content), "+goose"), file.Name)
		}
	}
}
