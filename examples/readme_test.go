package examples

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the examples' code into the pages that show it")

// goBlock is a block of Go in a page, with the comment that names its Example.
var goBlock = regexp.MustCompile("(?m)^(?:<!-- ([\\w.]+) -->\n)?```go\n((?s:.*?))```\n")

// TestReadmeCode checks that the Go of the README, and of the page on Redisson, is that of examples
// that compile.
func TestReadmeCode(t *testing.T) {
	readme := exampleBodies(t, "", "../example_test.go")
	for _, dir := range []string{"middleware/httplock", "middleware/grpclock", "fxmodule"} {
		maps.Copy(readme, exampleBodies(t, path.Base(dir)+".", "../"+dir+"/example_test.go"))
	}
	checkCode(t, "../README.md", readme)
	checkCode(t, "../docs/reference/redisson.md", exampleBodies(t, "", "redisson_test.go"))
}

func checkCode(t *testing.T, file string, bodies map[string]string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	fresh := goBlock.ReplaceAllFunc(page, func(block []byte) []byte {
		blocks++
		m := goBlock.FindSubmatch(block)
		name, code := string(m[1]), string(m[2])
		want, ok := bodies[name]
		if !ok {
			t.Errorf("%s: this block has no comment before it that names an example, or there is no %q:\n%s", file, name, code)
			return block
		}
		if got := mainBody(code); got != want {
			if *update && !strings.Contains(code, "func main() {") {
				return fmt.Appendf(nil, "<!-- %s -->\n```go\n%s```\n", name, want)
			}
			t.Errorf("%s is\n%s\nbut %s says\n%s\n`go test ./examples -update` mends it", name, want, file, got)
		}
		return block
	})
	if blocks == 0 {
		t.Errorf("%s has no Go", file)
	}
	if *update && !bytes.Equal(fresh, page) {
		if err := os.WriteFile(file, fresh, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadmeProgram runs the README's first block as it stands.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, goBlock.FindSubmatch(readme)[2], 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "run", file).CombinedOutput()
	if err != nil || string(out) != "shipped 42\n" {
		t.Errorf("%v\n%s", err, out)
	}
}

// exampleBodies returns the code of each Example without its Output comment, by prefix
// and name.
func exampleBodies(t *testing.T, prefix, path string) map[string]string {
	fset := token.NewFileSet()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	bodies := make(map[string]string)
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(fn.Name.Name, "Example") {
			from, to := fset.Position(fn.Body.Lbrace).Offset+2, fset.Position(fn.Body.Rbrace).Offset
			body, _, _ := strings.Cut(string(src[from:to]), "\t// Output:")
			bodies[prefix+fn.Name.Name] = dedent(body)
		}
	}
	return bodies
}

// mainBody is what is in func main of a whole program; of other code, all.
func mainBody(code string) string {
	_, rest, ok := strings.Cut(code, "func main() {\n")
	if !ok {
		return code
	}
	body, _, _ := strings.Cut(rest, "\n}\n")
	return dedent(body + "\n")
}

func dedent(code string) string {
	lines := strings.SplitAfter(code, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "\t")
	}
	return strings.Join(lines, "")
}
