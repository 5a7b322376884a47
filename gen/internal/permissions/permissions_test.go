package permissions

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/gen/internal/golden"
	"github.com/mortise-go/mortise/gen/internal/luascript"
)

func TestGolden(t *testing.T) {
	all, err := luascript.ParseDir("testdata/scripts")
	if err != nil {
		t.Fatal(err)
	}
	features, err := Load("testdata/features.txt", all)
	if err != nil {
		t.Fatal(err)
	}
	src, err := Render("scripts", all, features)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/permissions.golden", src)
	page, err := os.ReadFile("testdata/page.md")
	if err != nil {
		t.Fatal(err)
	}
	written, err := Page(page, features)
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/page.golden", written)
	again, err := Page(written, features)
	if err != nil || string(again) != string(written) {
		t.Errorf("a second time the page is\n%s\n%v", again, err)
	}
}

func TestMistakesOfAFileOfFeatures(t *testing.T) {
	const script = "--! script one\n--! key 1 lock hash NAME\n--! reply int\nreturn redis.call('del', KEYS[1])\n"
	for _, test := range []struct{ name, script, features, want string }{
		{"good", script, "feature a: A\nscripts one\n", ""},
		{"a key without its form", strings.Replace(script, " NAME", "", 1), "feature a: A\nscripts one\n",
			"one.lua:2: the key lock does not say how it is made of a lock's name; end the line with its form, such as NAME " +
				"or mortise:1:tick:{NAME}"},
		{"a script of no feature", script, "feature a: A\n",
			"features.txt: no feature sends the script one; add it to the scripts of a feature"},
		{"an unknown script", script, "feature a: A\nscripts one two\n",
			"features.txt:2: there is no script two; name the file without .lua"},
		{"an unknown line", script, "feature a: A\nscripts one\nneeds get\n",
			`features.txt:3: a line begins with "needs", which is not known; write feature, besides, scripts, must, may or ` +
				"never"},
		{"no feature yet", script, "scripts one\nfeature a: A\nscripts one\n",
			`features.txt:1: the line belongs to no feature; begin with "feature NAME: TITLE"`},
		{"no title", script, "feature a\nscripts one\n",
			`features.txt:1: the feature has no title; write "feature NAME: TITLE"`},
		{"two of one name", script, "feature a: A\nscripts one\nfeature a: B\n",
			"features.txt:3: a second feature is called a; choose another"},
		{"besides itself", script, "feature a: A\nscripts one\nbesides a\n",
			`features.txt:3: there is no feature "a" above; name one of those above`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			for name, text := range map[string]string{"go.mod": "module m", "one.lua": test.script,
				"features.txt": test.features} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			all, err := luascript.ParseDir(".")
			if err != nil {
				t.Fatal(err)
			}
			_, err = Load("features.txt", all)
			if got := textOf(err); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestMistakesOfAPage(t *testing.T) {
	for _, test := range []struct{ page, want string }{
		{"# A page\n", "the page has no line <!-- permissions: table -->"},
		{"\n<!-- permissions: table -->\n", `the block "<!-- permissions: table" does not end; add a line ` +
			"<!-- permissions: end -->"},
		{"\n<!-- permissions: user all a -->\n<!-- permissions: end -->\n", `the block "user all a" is not known; write ` +
			"user quiet FEATURE..., or user least FEATURE..., or table"},
		{"\n<!-- permissions: user least b -->\n<!-- permissions: end -->\n", "there is no feature b"},
	} {
		if _, err := Page([]byte(test.page), []*Feature{{Name: "a"}}); textOf(err) != test.want {
			t.Errorf("%q: got %v, want %s", test.page, err, test.want)
		}
	}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
