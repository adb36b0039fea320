package migrations

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// File is a migration as a tool reads it.
type File struct {
	Name    string
	Content []byte
}

// The formats of [Export].
const (
	// Goose is that of [FS]: 00001_tokens.sql, up and down in one file.
	Goose = "goose"
	// GolangMigrate has a file for each direction: 000001_tokens.up.sql. Give
	// it a table of versions of its own (x-migrations-table), or renumber the
	// files after your own. Leave x-multi-statement off. A version that failed is
	// dirty for the tool, but nothing of it is there: force the one before it,
	// which is -1 for the first.
	GolangMigrate = "golang-migrate"
	// Tern has up and down in one file: 001_tokens.sql. Give it a table of
	// versions of its own (version_table), or renumber the files after your own.
	Tern = "tern"
	// SQL is for psql alone: 00001_tokens.up.sql and 00001_tokens.down.sql,
	// each one transaction. Up goes from the lowest number to the highest, down
	// the other way.
	SQL = "sql"
)

// Formats are those that [Export] knows.
func Formats() []string { return []string{Goose, GolangMigrate, Tern, SQL} }

// Export returns the migrations as files for another tool, ordered by name. Use
// one tool for a database from the first migration on: each has a record of its
// own of what has run. The only error is that there is no such format.
func Export(format string) ([]File, error) {
	if !slices.Contains(Formats(), format) {
		return nil, fmt.Errorf("migrations: export: there is no format %q; there are %s", format, strings.Join(Formats(), ", "))
	}
	names, err := fs.Glob(FS, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("migrations: export: %w", err)
	}
	var files []File
	for i, name := range names {
		content, err := FS.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("migrations: export: %w", err)
		}
		_, title, _ := strings.Cut(strings.TrimSuffix(path.Base(name), ".sql"), "_")
		files = append(files, export(format, i+1, name, title, content)...)
	}
	return files, nil
}

func export(format string, number int, name, title string, content []byte) []File {
	up, down := split(content)
	switch format {
	case GolangMigrate:
		// Sends a file as one query, which is one transaction. After an error in
		// one that the file begins itself, the tool could not give its lock back.
		return []File{
			{fmt.Sprintf("%06d_%s.down.sql", number, title), down},
			{fmt.Sprintf("%06d_%s.up.sql", number, title), up},
		}
	case Tern: // makes a transaction of it itself
		return []File{{fmt.Sprintf("%03d_%s.sql", number, title), slices.Concat(up, []byte("\n---- create above / drop below ----\n\n"), down)}}
	case SQL:
		return []File{
			{fmt.Sprintf("%05d_%s.down.sql", number, title), script(down)},
			{fmt.Sprintf("%05d_%s.up.sql", number, title), script(up)},
		}
	default:
		return []File{{name, content}}
	}
}

// split takes goose's marks out.
func split(content []byte) (up, down []byte) {
	direction := &up
	for line := range bytes.Lines(content) {
		switch string(bytes.TrimSpace(line)) {
		case "-- +goose Up", "-- +goose StatementBegin", "-- +goose StatementEnd":
		case "-- +goose Down":
			direction = &down
		default:
			*direction = append(*direction, line...)
		}
	}
	return append(bytes.TrimSpace(up), '\n'), append(bytes.TrimSpace(down), '\n')
}

// script is one transaction and stops at the first error, where psql would go on.
func script(sql []byte) []byte {
	return slices.Concat([]byte("\\set ON_ERROR_STOP on\nBEGIN;\n\n"), sql, []byte("\nCOMMIT;\n"))
}
