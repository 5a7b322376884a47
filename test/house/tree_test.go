package house

import (
	"bytes"
	"errors"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

const (
	root   = "../.."
	module = "github.com/mortise-go/mortise"
)

// file is a Go file of the repository that is built on this platform.
type file struct {
	// path is relative to the root of the repository, with slashes.
	path      string
	syntax    *ast.File
	fset      *token.FileSet
	generated bool
}

// dir is the package's path, relative to mortise's.
func (f *file) dir() string { return path.Dir(f.path) }

// place is the name of f's package in findings: a package of tests beside another is one of its own.
func (f *file) place() string {
	switch {
	case f.dir() == ".":
		return f.syntax.Name.Name
	case strings.HasSuffix(f.syntax.Name.Name, "_test"):
		return f.dir() + "_test"
	}
	return f.dir()
}

// test reports whether f is test code: the closing notes count the same files so.
func (f *file) test() bool {
	return strings.HasSuffix(f.path, "_test.go") || within(f.path, "test", "backend/backendtest", "internal/redistest")
}

// product reports whether f is code of the product, written by hand.
func (f *file) product() bool { return !f.test() && !f.generated && !within(f.path, "examples") }

// importable reports whether f is code that users can import.
func (f *file) importable() bool {
	return f.syntax.Name.Name != "main" && !strings.HasSuffix(f.path, "_test.go") && !within(f.path, "test", "examples") &&
		!slices.Contains(strings.Split(f.path, "/"), "internal")
}

// within reports whether p is one of the directories, or below one.
func within(p string, dirs ...string) bool {
	for _, d := range dirs {
		if p == d || strings.HasPrefix(p, d+"/") {
			return true
		}
	}
	return false
}

// tree is what the rules measure.
type tree struct {
	files []*file
	// texts are all Go files by path, those of other platforms too.
	texts map[string][]byte
	// pages are the documents by path, decision records apart.
	pages map[string][]byte
}

// loadTree loads the packages of all modules of the repository.
func loadTree(t *testing.T) tree {
	t.Helper()
	all := tree{texts: make(map[string][]byte), pages: make(map[string][]byte)}
	for _, p := range gitFiles(t, "*.md") {
		if text, err := os.ReadFile(filepath.Join(root, p)); err == nil && !within(p, "docs/decisions") {
			all.pages[p] = text
		}
	}
	for _, p := range gitFiles(t, "*.go") {
		text, err := os.ReadFile(filepath.Join(root, p))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted in the working tree
		}
		ok(t, err)
		all.texts[p] = text
	}
	seen := make(map[string]bool)
	for _, mod := range gitFiles(t, "*go.mod") {
		if strings.Contains(mod, "testdata/") {
			continue
		}
		for _, f := range loadModule(t, path.Dir(mod)) {
			if _, tracked := all.texts[f.path]; tracked && !seen[f.path] {
				seen[f.path] = true
				all.files = append(all.files, f)
			}
		}
	}
	return all
}

// ok ends the test if err is not nil.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func gitFiles(t *testing.T, pattern string) []string {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", pattern)
	cmd.Dir = root
	out, err := cmd.Output()
	ok(t, err)
	return strings.Fields(string(out))
}

func loadModule(t *testing.T, dir string) []*file {
	t.Helper()
	top, err := filepath.Abs(root)
	ok(t, err)
	fset := token.NewFileSet()
	loaded, err := packages.Load(&packages.Config{
		Mode:  packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedSyntax,
		Dir:   filepath.Join(root, dir),
		Fset:  fset,
		Tests: true,
	}, "./...")
	ok(t, err)
	var files []*file
	for _, p := range loaded {
		for _, e := range p.Errors {
			t.Errorf("%s: %v", dir, e)
		}
		for _, f := range p.Syntax {
			name, err := filepath.Rel(top, fset.Position(f.FileStart).Filename)
			ok(t, err)
			files = append(files, &file{filepath.ToSlash(name), f, fset, ast.IsGenerated(f)})
		}
	}
	return files
}

// lines counts the lines of a text as wc -l does.
func lines(text []byte) int { return bytes.Count(text, []byte("\n")) }
