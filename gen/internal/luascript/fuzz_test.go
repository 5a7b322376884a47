package luascript

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// FuzzParse reads arbitrary scripts: what is wrong with one is told as mistakes with a line
// and a remedy, and what is accepted is still the same script when its comments are gone, as any other Lua is.
func FuzzParse(f *testing.F) {
	const dir = "../../../scripts"
	folder, err := ReadDir(dir)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range folder.Scripts {
		src, err := os.ReadFile(filepath.Join(dir, s.Name+".lua"))
		if err != nil {
			f.Fatal(err)
		}
		// A script's name is its file's.
		f.Add(folder.constants.fill(strings.Replace(string(src), "--! script "+s.Name, "--! script fuzz", 1)))
	}
	for _, src := range []string{
		"", "--!", "--! script", "--! script fuzz\n--! key 1 a hash\n--! reply int\nreturn 1",
		"--! key * a hash\n--! key 1 b hash",
		"--! script fuzz\n--! key * a hash\n--! arg * b ms\n--! reply ints ok\nreturn {redis.call('get', " +
			"KEYS[1]), ARGV[1]}",
		"--! script fuzz\n--! key 1 a hash\n--! reply int ok\nlocal s = [==[\n--! key ]==] return #s + #KEYS[1] " +
			"--[[ open",
		"--! script fuzz\n--! key 1 a hash\n--! reply int ok\nreturn KEYS[1] .. '\\\\' .. \"\\\"--\" --[=[ ]] ]=]",
		"a = [==[ --x ]==] --[[ y ]] b = '\\'' -- z", "return 1 - - 1, 2--[[]]-1", "goto x ::x::", "return 0x",
		"x = function() x() end", "x = 0e \ny = 1", "\x00", "--! key 99999999999999999999 a hash",
	} {
		f.Add(src)
	}
	for _, src := range []string{"x = 'a' .. kept .. 'b'", "x = #'a' .. kept .. #'b\\''", "local kept = {kept = 3}",
		"x = kept[3 * kept].kept", "function f(kept) end", "x = 'a' .. 3 .. kept --[[ 'b' ]] .. \"'\"",
		"x = kept'a' .. 1 .. 'b'"} {
		f.Add(src)
	}
	f.Add(good)
	kept := &Constant{Name: "kept", Value: "60000", Unit: "ms"}
	named := &Folder{constants: &constants{all: []*Constant{kept}, byName: map[string]*Constant{"kept": kept}}}
	f.Fuzz(func(t *testing.T, src string) {
		stripKeepsTheMeaning(t, src)
		_, mistakes := named.parse("fuzz.lua", []byte(src))
		areMistakesIn(t, src, mistakes)
		s, err := Parse("fuzz.lua", []byte(src))
		if err != nil {
			if !errors.As(err, &mistakes) || len(mistakes) == 0 {
				t.Fatalf("%T, want mistakes: %v", err, err)
			}
			areMistakesIn(t, src, mistakes)
			return
		}
		if s.Name != "fuzz" || len(s.Keys) == 0 || s.Reply == "" {
			t.Errorf("accepted without a name, a key or a reply: %+v", s)
		}
		stripKeepsTheMeaning(t, s.Source)
		if twice := strip(s.Source); twice != s.Source {
			t.Errorf("stripped twice it differs:\n%q\n%q", s.Source, twice)
		}
	})
}

// areMistakesIn checks that mistakes have a text, a remedy, and a line of the script.
func areMistakesIn(t *testing.T, src string, mistakes mistake.List) {
	t.Helper()
	for _, m := range mistakes {
		if m.What == "" || m.Remedy == "" || m.Line < 0 ||
			m.Line > 1+strings.Count(src, "\n")+strings.Count(src, "\r") {
			t.Errorf("a mistake without a text, a remedy or a line of the script: %+v", m)
		}
	}
}

func stripKeepsTheMeaning(t *testing.T, src string) {
	t.Helper()
	before, err := parse.Parse(strings.NewReader(src), "")
	if err != nil || strings.ContainsAny(src, "\v\f\r") {
		return
	}
	after, err := parse.Parse(strings.NewReader(strip(src)), "")
	if err != nil {
		t.Fatalf("stripped to %q: %v", strip(src), err)
	}
	if !sameTree(reflect.ValueOf(before), reflect.ValueOf(after)) {
		t.Errorf("%q is stripped to %q", src, strip(src))
	}
}

var endsInDigit = regexp.MustCompile(`[0-9a-fA-F.]$`)

// sameTree compares all but the lines. parse.Dump takes time that doubles with each level.
func sameTree(a, b reflect.Value) bool {
	if a.Kind() != b.Kind() || a.IsValid() && a.Type() != b.Type() {
		return false
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		return a.IsNil() == b.IsNil() && (a.IsNil() || sameTree(a.Elem(), b.Elem()))
	case reflect.Slice:
		same := a.Len() == b.Len()
		for i := 0; same && i < a.Len(); i++ {
			same = sameTree(a.Index(i), b.Index(i))
		}
		return same
	case reflect.Struct:
		if n, is := a.Interface().(ast.NumberExpr); is && !endsInDigit.MatchString(n.Value) {
			return true // as 0e, which Lua refuses: the parser takes the next character for part of the number
		}
		for field := range a.Fields() {
			if field.IsExported() && !sameTree(a.FieldByIndex(field.Index), b.FieldByIndex(field.Index)) {
				return false
			}
		}
		return true
	}
	return a.Equal(b)
}
