package tools

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/mortise-go/mortise"
)

// goFile is a Go file of the repository; path is relative to the repository's root.
type goFile struct {
	path   string
	syntax *ast.File
}

func (f goFile) dir() string { return path.Dir(f.path) }

func (f goFile) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// within reports whether f is below one of the directories.
func (f goFile) within(dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return strings.HasPrefix(f.path, d+"/") })
}

// goFiles parses the repository's Go files, those of other platforms too.
func goFiles(t *testing.T) (files []goFile) {
	t.Helper()
	list := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go")
	list.Dir = root
	out, err := list.Output()
	ok(t, err)
	for p := range strings.FieldsSeq(string(out)) {
		name := filepath.Join(root, p)
		if found, _ := filepath.Glob(name); found == nil || strings.Contains(p, "/testdata/") {
			continue // deleted in the working tree, or no code of ours
		}
		text, err := os.ReadFile(name)
		ok(t, err)
		files = append(files, goFile{p, parse(t, string(text))})
	}
	return files
}

func parse(t *testing.T, text string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "", text, parser.SkipObjectResolution)
	ok(t, err)
	return f
}

// ok ends the test if err is not nil.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// onlyKnown fails for each name that is found and not known, and for each that is known and found no more.
func onlyKnown(t *testing.T, found map[string]bool, known, remedy string) {
	t.Helper()
	for name := range found {
		if !slices.Contains(strings.Fields(known), name) {
			t.Errorf("%s: %s", name, remedy)
		}
	}
	for name := range strings.FieldsSeq(known) {
		if !found[name] {
			t.Errorf("%s is known for something that it no longer has: take it off the list", name)
		}
	}
}
