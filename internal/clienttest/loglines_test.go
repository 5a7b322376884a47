package clienttest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logLines are the log lines that code has, by text: level and attributes, as docs/reference/log-lines.md writes them.
type logLines struct {
	lines map[string]string   // text: level
	keys  map[string][]string // text, or name of a summary: attributes
	names map[string]string   // name of a summary: text
}

// TestTheLogLinesAreThoseOfThePage compares docs/reference/log-lines.md with the code: each line, its level and its
// attributes.
func TestTheLogLinesAreThoseOfThePage(t *testing.T) {
	t.Chdir("../..")
	code := logLines{map[string]string{}, map[string][]string{}, map[string]string{}}
	for _, root := range []string{".", "internal", "middleware", "fxmodule", "backend"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && root == "." && path != ".":
				return fs.SkipDir
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err == nil {
				code.read(file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range code.names {
		code.keys[text] = code.keys[name]
	}

	page, err := os.ReadFile("docs/reference/log-lines.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(mortise: [^`]*)` \\| ([A-Z]+) \\| ([^|]*) \\| [^|]{20,} \\| [^|]{10,} \\|$")
	documented := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		text, level, keys := m[1], m[2], strings.ReplaceAll(m[3], "`", "")
		documented[text] = true
		if code.lines[text] != level {
			t.Errorf("the page has %q at %s, the code at %q", text, level, code.lines[text])
		}
		if want := strings.Join(code.keys[text], ", "); want != "" && want != keys {
			t.Errorf("the page gives %q the attributes %s, the code %s", text, keys, want)
		}
	}
	for text := range code.lines {
		if !documented[text] {
			t.Errorf("docs/reference/log-lines.md has no row for %q", text)
		}
	}
	if len(code.lines) < 10 || len(code.keys) < 8 {
		t.Errorf("found %q in the code; the search is broken", slices.Sorted(maps.Keys(code.lines)))
	}
}

// read finds the lines of a file: a text beside a level, in a call or a table.
func (l logLines) read(file *ast.File) {
	for _, d := range file.Decls {
		var kinds []string // the summaries that a function names
		ast.Inspect(d, func(n ast.Node) bool {
			if s, is := n.(*ast.SelectorExpr); is && fmt.Sprint(s.X) == "announce" && ast.IsExported(s.Sel.Name) {
				kinds = append(kinds, s.Sel.Name)
			}
			return true
		})
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				l.line(n.Args)
				if s, is := n.Fun.(*ast.SelectorExpr); is && s.Sel.Name == "Sum" {
					for _, kind := range kinds {
						l.keys[kind] = keysOf(n.Args)
					}
				}
			case *ast.KeyValueExpr:
				if x, is := n.Value.(*ast.CompositeLit); is {
					if text := l.line(x.Elts); text != "" {
						l.names[fmt.Sprint(n.Key)] = text
					}
				}
			}
			return true
		})
	}
}

// line notes a line, if the expressions are one.
func (l logLines) line(list []ast.Expr) (text string) {
	level := ""
	for _, x := range list {
		if s, is := x.(*ast.SelectorExpr); is && fmt.Sprint(s.X) == "slog" {
			level = strings.ToUpper(strings.TrimPrefix(s.Sel.Name, "Level"))
		}
		if s := textOf(x); strings.HasPrefix(s, "mortise: ") {
			text = s
		}
	}
	if level == "" || text == "" {
		return ""
	}
	l.lines[text] = level
	if keys := keysOf(list); len(keys) > 0 {
		l.keys[text] = keys
	}
	return text
}

// keysOf are the attributes among arguments: texts, or the first arguments of slog.String and its like.
func keysOf(list []ast.Expr) (keys []string) {
	for _, x := range list {
		s := textOf(x)
		if call, is := x.(*ast.CallExpr); is && len(call.Args) == 2 {
			if f, is := call.Fun.(*ast.SelectorExpr); is && fmt.Sprint(f.X) == "slog" {
				s = textOf(call.Args[0])
			}
		}
		if s != "" && !strings.HasPrefix(s, "mortise: ") {
			keys = append(keys, s)
		}
	}
	return keys
}

// textOf is a text that is written down, in parts perhaps.
func textOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(x.Value)
		if err == nil {
			return s
		}
	case *ast.BinaryExpr:
		return textOf(x.X) + textOf(x.Y)
	}
	return ""
}
