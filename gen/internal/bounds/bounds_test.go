package bounds

import (
	"strings"
	"testing"

	"github.com/mortise-go/mortise/gen/internal/luascript"
)

func script(t *testing.T, name, key, bound string) *luascript.Script {
	t.Helper()
	reply := "--! reply int\n"
	if key == "*" {
		reply = "--! reply ints\n"
	}
	s, err := luascript.Parse(name+".lua", []byte("--! script "+name+"\n--! key "+key+" lock hash\n"+reply+bound+
		"return redis.call('hlen', KEYS[1])"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScriptsOfOneBoundShareARow(t *testing.T) {
	all := []*luascript.Script{
		script(t, "long", "1", "--! bound 1000000 calls 2 MB\n"),
		script(t, "one", "1", "--! bound 4 calls 1 KB\n"),
		script(t, "other", "*", "--! bound 4 calls 1 KB\n"),
	}
	if err := Check(all); err != nil {
		t.Fatal(err)
	}
	got, err := Page([]byte("before\n<!-- bounds: table -->\nold\n<!-- bounds: end -->\nafter\n"), all)
	want := "before\n<!-- bounds: table -->\n| scripts | commands | bytes |\n|---|---|---|\n" +
		"| `one`, `other` \\* | 4 | 1 KB |\n| `long` | 1,000,000 | 2 MB |\n<!-- bounds: end -->\nafter\n"
	if err != nil || string(got) != want {
		t.Errorf("got\n%s, %v, want\n%s", got, err, want)
	}
	src, err := Render("scripts", all)
	if err != nil || !strings.Contains(string(src), `"long":  {Calls: 1000000, Bytes: 2000000},`) {
		t.Errorf("%s, %v", src, err)
	}
}

func TestAScriptWithoutABoundIsNamed(t *testing.T) {
	err := Check([]*luascript.Script{script(t, "one", "1", "")})
	want := `one.lua:1: the script states no bound; add a line such as "--! bound 300 calls 20 KB"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestOtherBlocksAreNamed(t *testing.T) {
	_, err := Page([]byte("\n<!-- bounds: list -->\n<!-- bounds: end -->\n"), nil)
	if err == nil || err.Error() != `the block "list" is not known; write table` {
		t.Error(err)
	}
}
