package traptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// sources are the folders whose SQL a privileged user's session may run.
var sources = []string{"advisory", "fencing", "migrations", "cmd", "internal/connhold", "internal/grant", "internal/lockproto"}

var (
	callPattern     = regexp.MustCompile(`([a-z_][a-z0-9_]*)\s*\(|(pg_[a-z0-9_]+)`)
	operatorPattern = regexp.MustCompile(`[-+*/<>=~!@#%^&|?]+`)
)

// implied are operators that the server looks up without their being written: for
// IN, BETWEEN, CASE, IS DISTINCT FROM, NULLIF and LIKE.
var implied = []string{"=", "<>", "<=", ">=", "~~", "!~~"}

// names are those that may be of functions, and of operators, in the project's SQL.
func names(t testing.TB) (functions, operators []string) {
	t.Helper()
	calls, symbols := map[string]bool{"now": true}, make(map[string]bool) // goose calls now
	for _, operator := range implied {
		symbols[operator] = true
	}
	collect := func(text string) {
		for _, match := range callPattern.FindAllStringSubmatch(text, -1) {
			calls[match[1]+match[2]] = true
		}
		for _, symbol := range operatorPattern.FindAllString(text, -1) {
			symbols[symbol] = true
		}
	}
	root := root(t)
	for _, source := range sources {
		err := filepath.WalkDir(filepath.Join(root, source), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil || entry.IsDir():
				return err
			case strings.HasSuffix(path, ".sql"):
				text, err := os.ReadFile(path)
				collect(string(text))
				return err
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				return eachString(path, collect)
			default:
				return nil
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return keys(calls), keys(symbols)
}

// eachString calls f with each string literal of a Go file.
func eachString(path string, f func(string)) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				f(text)
			}
		}
		return true
	})
	return nil
}

// root is the folder of the project.
func root(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "migrations", "00001_tokens.sql")); err == nil {
			return folder
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			t.Fatal("traptest: the project's folder was not found")
		}
		folder = parent
	}
}

func keys(set map[string]bool) []string {
	list := make([]string, 0, len(set))
	for key := range set {
		list = append(list, key)
	}
	return list
}
