package commands

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/gen/internal/constants"
	"github.com/mortise-go/mortise/gen/internal/luascript"
)

var update = flag.Bool("update", false, "write the golden files")

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
	compare(t, "testdata/golden/scripts.golden", src)

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
		compare(t, "testdata/golden/"+name+".golden", src)
	}
}

func compare(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what is generated; look at the difference with\n\tgo test ./gen/commands -update && "+
			"git diff\ngot:\n%s", file, got)
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
