package examples

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// products are the packages whose options docs/reference/options.md lists.
var products = []string{
	".", "backend/etcd", "backend/postgres", "backend/sqlite", "backend/valkey",
	"fxmodule", "gocron", "leader", "once", "middleware/delegation", "middleware/grpclock",
	"middleware/httplock", "middleware/telemetry", "redisgo", "rueidis", "semaphore", "latch", "quorum",
}

// sources are the files of a package, without its tests.
func sources(t *testing.T, dir string) (parsed []*ast.File) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(files), err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	return parsed
}

// exported calls f with each exported top-level declaration of a package.
func exported(t *testing.T, dir string, f func(name string, d ast.Node)) {
	t.Helper()
	for _, file := range sources(t, dir) {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() {
					f(d.Name.Name, d)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && v.Names[0].IsExported() {
						f(v.Names[0].Name, v)
					}
				}
			}
		}
	}
}

// isOption reports whether a function makes an option: its only result is of a type named ...Option.
func isOption(n ast.Node) bool {
	d, ok := n.(*ast.FuncDecl)
	if !ok || d.Type.Results.NumFields() != 1 {
		return false
	}
	result, ok := d.Type.Results.List[0].Type.(*ast.Ident)
	return ok && strings.HasSuffix(result.Name, "Option")
}

func page(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReferenceNamesEachOption(t *testing.T) {
	options, found := page(t, "../docs/reference/options.md"), 0
	for _, dir := range products {
		exported(t, dir, func(name string, d ast.Node) {
			if isOption(d) {
				found++
				if !strings.Contains(options, "`"+name+"(") && !strings.Contains(options, "`"+filepath.Base(dir)+"."+name+"(") {
					t.Errorf("docs/reference/options.md lacks %s of %s", name, dir)
				}
			}
		})
	}
	if found < 30 {
		t.Errorf("only %d options found", found)
	}
}

func TestReferenceNamesEachError(t *testing.T) {
	errors, found := page(t, "../docs/reference/errors.md"), 0
	for _, dir := range products {
		exported(t, dir, func(name string, d ast.Node) {
			v, ok := d.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(name, "Err") {
				return
			}
			for _, n := range v.Names {
				found++
				row := "| `" + n.Name + "` |"
				if dir != "." {
					row = "`" + strings.Replace(filepath.Base(dir), "gocron", "gocronlock", 1) + "." + n.Name + "`"
				}
				if !strings.Contains(errors, row) {
					t.Errorf("docs/reference/errors.md has no row with %s of %s", n.Name, dir)
				}
			}
		})
	}
	if found < 24 {
		t.Errorf("only %d errors found", found)
	}
}

// directories are those of one entry in .github/dependabot.yml.
var directories = regexp.MustCompile(`package-ecosystem: gomod\n    directories: \[(.*)\]`)

func TestDependencyUpdatesCoverEachModule(t *testing.T) {
	var patterns []string
	for _, m := range directories.FindAllStringSubmatch(page(t, "../.github/dependabot.yml"), -1) {
		for quoted := range strings.SplitSeq(m[1], ", ") {
			patterns = append(patterns, strings.Trim(quoted, `"`))
		}
	}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && slices.Contains([]string{"bin", "target", "testdata"}, d.Name()) {
			return cmp.Or(err, filepath.SkipDir)
		}
		dir := "/" + strings.TrimPrefix(filepath.Dir(path), "../")
		if dir == "/.." {
			dir = "/"
		}
		if d.Name() == "go.mod" && !slices.ContainsFunc(patterns, func(pattern string) bool {
			matched, _ := filepath.Match(pattern, dir)
			return matched
		}) {
			t.Errorf(".github/dependabot.yml has no entry for the module in %s", dir)
		}
		return nil
	})
	if err != nil || len(patterns) < 3 {
		t.Errorf("%d patterns, %v", len(patterns), err)
	}
}
