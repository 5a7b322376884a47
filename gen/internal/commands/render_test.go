package commands

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/mortise-go/mortise/gen/internal/constants"
	"github.com/mortise-go/mortise/gen/internal/golden"
	"github.com/mortise-go/mortise/gen/internal/luascript"
	"github.com/mortise-go/mortise/gen/profiles"
)

const goldenPath = "github.com/mortise-go/mortise/gen/internal/commands/testdata/golden"

func TestGolden(t *testing.T) {
	all, err := luascript.ParseDir("testdata/golden/scripts")
	if err != nil {
		t.Fatal(err)
	}
	src, err := constants.Render("scripts", all)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/golden/scripts.golden", src)

	in, err := Load(goldenPath+"/proto.Commands", goldenPath+"/scripts")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"goredis", "rueidis", "valkey"} {
		p, err := LoadProfile(name)
		if err != nil {
			t.Fatal(err)
		}
		src, err := Render("adapter", in, p)
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "testdata/golden/"+name+".golden", src)
		if name != "valkey" { // whose client is not in this module
			compile(t, src)
		}
	}
}

// Two files hold what one does, each imports what it uses, and they compile together.
func TestSplit(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for a second")
	}
	const proto = "github.com/mortise-go/mortise/backend/redisproto"
	const batcher, scripts = proto + "/batcher", "github.com/mortise-go/mortise/scripts"
	in, err := Load(proto+".Commands", scripts)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		profile          string
		sending, methods []string // imports
	}{
		{"goredis", []string{"context", "errors", "fmt", "strconv", "sync", "time", "github.com/redis/go-redis/v9",
			"github.com/mortise-go/mortise/backend", proto, batcher},
			[]string{"context", "github.com/redis/go-redis/v9", proto, scripts}},
		{"rueidis", []string{"context", "strconv", "sync", "time", "github.com/redis/rueidis", proto, batcher},
			[]string{"context", "strconv", "github.com/redis/rueidis", proto, scripts}},
		{"valkey", []string{"context", "strconv", "sync", "time", "github.com/valkey-io/valkey-go", proto, batcher},
			[]string{"context", "strconv", "github.com/valkey-io/valkey-go", proto, scripts}},
	} {
		t.Run(c.profile, func(t *testing.T) {
			p, err := LoadProfile(c.profile)
			if err != nil {
				t.Fatal(err)
			}
			one, err := Render("adapter", in, p)
			if err != nil {
				t.Fatal(err)
			}
			sending, methods, err := RenderSplit("adapter", in, p)
			if err != nil {
				t.Fatal(err)
			}
			_, whole := parts(t, one)
			imports, first := parts(t, sending)
			if !slices.Equal(imports, c.sending) {
				t.Errorf("the first file imports %q, want %q", imports, c.sending)
			}
			imports, second := parts(t, methods)
			if !slices.Equal(imports, c.methods) {
				t.Errorf("the second file imports %q, want %q", imports, c.methods)
			}
			if first+second != whole {
				t.Errorf("two files are not what one is:\n%s%s", sending, methods)
			}
			if c.profile != "valkey" { // whose client is not in this module
				compile(t, sending, methods)
			}
		})
	}
}

// parts are the paths that a file imports, and what follows the imports.
func parts(t *testing.T, src []byte) (imports []string, rest string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range file.Imports {
		imports = append(imports, importPath(spec))
	}
	return imports, string(src[file.Decls[0].End():])
}

// compile checks files as those of one package, which may use the golden scripts. In the short tier it does not: what
// is generated there is what is in the tree, which the other packages' tests compile.
func compile(t *testing.T, files ...[]byte) {
	t.Helper()
	if testing.Short() {
		return
	}
	dir, err := filepath.Abs("testdata/golden")
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := os.ReadFile("testdata/golden/scripts.golden")
	if err != nil {
		t.Fatal(err)
	}
	overlay := map[string][]byte{filepath.Join(dir, "scripts", "scripts_gen.go"): scripts}
	for i, src := range files {
		overlay[filepath.Join(dir, "adapter", fmt.Sprintf("file%d.go", i))] = src
	}
	pkgs, err := packages.Load(&packages.Config{Mode: loadMode, Overlay: overlay, ParseFile: parse}, goldenPath+"/adapter")
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) != 1 || len(pkgs[0].Syntax) != len(files) {
		t.Fatalf("loaded %d packages, want one of %d files", len(pkgs), len(files))
	}
	for _, err := range pkgs[0].Errors {
		t.Error(err)
	}
}

func TestAnImportWhoseNameIsNotKnownCannotBeSplit(t *testing.T) {
	in, err := Load(goldenPath+"/proto.Commands", goldenPath+"/scripts")
	if err != nil {
		t.Fatal(err)
	}
	const path = `"github.com/redis/go-redis/v9"`
	src, _ := profiles.Source("goredis")
	p, err := parseProfile("mine.tmpl", strings.Replace(string(src), "redis "+path, path, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Render("adapter", in, p); err != nil {
		t.Errorf("one file: %v", err)
	}
	_, _, err = RenderSplit("adapter", in, p)
	if want := "mine.tmpl: the path " + path + " does not tell the package's name, or nothing uses the package; " +
		"write NAME " + path + " in the block imports, or remove it"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAProfileMustBeComplete(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.tmpl")
	src := ""
	for _, name := range blocks {
		if name != "batch" {
			src += `{{define "` + name + `"}}{{end}}`
		}
	}
	write(t, file, src)
	_, err := LoadProfile(file)
	if want := file + `: the profile has no block "batch"; add {{define "batch"}}...{{end}}; ` +
		`docs/reference/generation.md says what it holds`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}

	_, err = LoadProfile("radix")
	if want := "profile radix: neither a file nor one of goredis, rueidis, valkey"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAProfileThatWritesNoGoIsNamed(t *testing.T) {
	in, err := Load(goldenPath+"/proto.Commands", goldenPath+"/scripts")
	if err != nil {
		t.Fatal(err)
	}
	src := ""
	for _, name := range blocks {
		src += `{{define "` + name + `"}}}{{end}}`
	}
	p, err := parseProfile("mine.tmpl", src)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Render("adapter", in, p); err == nil ||
		!strings.HasPrefix(err.Error(), "profile mine.tmpl: the generated code is not Go: ") {
		t.Errorf("got %v", err)
	}
}

func TestAProfileThatAsksForWhatABlockDoesNotSeeIsTold(t *testing.T) {
	in, err := Load(goldenPath+"/proto.Commands", goldenPath+"/scripts")
	if err != nil {
		t.Fatal(err)
	}
	src := ""
	for _, name := range blocks {
		src += `{{define "` + name + `"}}{{end}}`
	}
	p, err := parseProfile("mine.tmpl", src+"\n"+`{{define "call"}}{{.Package}}{{end}}`)
	if err != nil {
		t.Fatal(err)
	}
	const remedy = "; docs/reference/generation.md lists the functions, and what each block sees"
	_, err = Render("adapter", in, p)
	if want := `mine.tmpl:2:19: executing "call" at <.Package>: can't evaluate field Package in type commands.Call` +
		remedy; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = parseProfile("mine.tmpl", "{{define")
	if err == nil || !strings.HasPrefix(err.Error(), "mine.tmpl:1: ") || !strings.HasSuffix(err.Error(), remedy) {
		t.Errorf("got %v, want file, line and remedy", err)
	}
}
