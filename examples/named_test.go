package examples

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Pages that name the tests which show what they say.
var pages = []string{
	"../SECURITY.md", "../docs/explanation/guarantees.md", "../docs/explanation/threat-model.md",
	"../docs/reference/deployments.md",
}

// testName is one in a page: a function, or a case of the conformance suite.
var testName = regexp.MustCompile("`((?:Test[A-Z]|Fuzz[A-Z]|Rule[0-9]{2}_|Port_)\\w*)`")

// TestNamedTestsExist checks that each test that a page names is in the tree.
func TestNamedTestsExist(t *testing.T) {
	there := testsOf(t, "..")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		names := testName.FindAllStringSubmatch(string(text), -1)
		if len(names) == 0 {
			t.Errorf("%s names no test", page)
		}
		for _, m := range names {
			if !there[m[1]] {
				t.Errorf("%s names %s, which is no test", page, m[1])
			}
		}
	}
}

// testsOf are the tests below root: functions of test files, and what backendtest names its cases.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		suite := filepath.Base(filepath.Dir(path)) == "backendtest"
		if d.IsDir() || !strings.HasSuffix(path, ".go") || !suite && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && strings.HasSuffix(path, "_test.go") {
					there[n.Name.Name] = true
				}
			case *ast.CompositeLit: // {"Rule01_...", func(e *env) {...}}
				if len(n.Elts) == 2 && suite {
					if name, ok := n.Elts[0].(*ast.BasicLit); ok && name.Kind == token.STRING {
						s, _ := strconv.Unquote(name.Value)
						there[s] = true
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// link is a relative one, with or without the place in the page.
var link = regexp.MustCompile(`\]\(([^)#:\s]*)(#[^)\s]*)?\)`)

// TestLinksLeadSomewhere checks the relative links of every page: the file and the heading exist.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range markdown(t, "..") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := page
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(page), m[1])
			}
			target, err := os.Stat(to)
			if err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[0])
				continue
			}
			theme := strings.HasPrefix(m[2], "#only-") // of a picture of the site
			if m[2] == "" || theme || target.IsDir() {
				continue
			}
			text, err := os.ReadFile(to)
			if err != nil {
				t.Fatal(err)
			}
			if !anchors(string(text))[m[2][1:]] {
				t.Errorf("%s: %s: there is no such heading in %s", page, m[0], to)
			}
		}
	}
}

// external is a link out of the repository.
var external = regexp.MustCompile(`\]\(([a-z]+:[^)\s]*)\)`)

// TestExternalLinksAreWellFormed checks form only: tests need no network.
func TestExternalLinksAreWellFormed(t *testing.T) {
	found := 0
	for _, page := range markdown(t, "..") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range external.FindAllStringSubmatch(string(text), -1) {
			found++
			u, err := url.Parse(m[1])
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || !strings.Contains(u.Host, ".") {
				t.Errorf("%s: %s is no address of the web", page, m[1])
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d external links found", found)
	}
}

// markdown lists the pages below root.
func markdown(t *testing.T, root string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && slices.Contains([]string{"bin", "target", ".git", "testdata"}, d.Name()) {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, ".md") {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 20 {
		t.Fatalf("only %d pages found below %s", len(found), root)
	}
	return found
}

// anchors are the places in a page that links can lead to.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(line, `<a name="`); ok {
			name, _, _ = strings.Cut(name, `"`)
			all[name] = true
		}
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			kept := strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
					return r
				}
				return -1
			}, strings.ToLower(strings.TrimSpace(heading)))
			all[kept] = true
		}
	}
	return all
}
