package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each package of the product has a rule of depguard that forbids it what the rule does not allow; each rule is for
// packages that exist. In a copy of the tree that has one file in each package, which imports a package that no rule
// allows, golangci-lint finds every file.
func TestEveryPackageHasARuleForItsImports(t *testing.T) {
	lint, err := filepath.Abs(root + "/bin/golangci-lint")
	ok(t, err)
	config, err := os.ReadFile(root + "/.golangci.yml")
	ok(t, err)
	files := map[string]string{
		".golangci.yml":   string(config),
		"go.mod":          "module " + module + "\n",
		"test/seed/go.go": "package seed\n",
	}
	for _, f := range goFiles(t) {
		if !f.test() && !f.within("test", "examples") {
			files[f.dir()+"/seed.go"] = "package seed\n\nimport _ \"" + module + "/test/seed\"\n"
		}
	}
	tree := t.TempDir()
	for name, text := range files {
		ok(t, os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755))
		ok(t, os.WriteFile(filepath.Join(tree, name), []byte(text), 0o644))
	}
	run := exec.Command(lint, "run", "--enable-only=depguard", "--output.text.print-issued-lines=false", "./...")
	run.Dir = tree
	out, err := run.CombinedOutput()
	t.Logf("%s", out)
	if run.ProcessState == nil {
		t.Fatalf("%v; make tools builds bin/golangci-lint", err)
	}
	for name := range files {
		finding := "\n" + filepath.Clean(name) + ":3:8: import '" + module + "/test/seed' is not allowed"
		said := strings.Contains("\n"+string(out), finding)
		if filepath.Base(name) == "seed.go" && !said {
			t.Errorf("%s may import anything: no rule of depguard in .golangci.yml is for its package", filepath.Dir(name))
		}
	}
	for _, m := range regexp.MustCompile(`\$\{config-path\}/(.*?)\*\.go`).FindAllStringSubmatch(string(config), -1) {
		if _, there := files[filepath.Clean(m[1])+"/seed.go"]; !there {
			t.Errorf("a rule of depguard in .golangci.yml is for %s, which has no code", m[1])
		}
	}
}
