package luascript

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

const good = `--! script lock
--! key 1 lock  hash
--! key 2 note  channel
--! arg 1 owner string
--! arg 2 lease ms
--! reply int   1 done; 0 not
--
-- Takes the lock.
local left = redis.call('pttl', KEYS[1]) -- -1: none
if left > tonumber(ARGV[2]) then
  return 0
end
redis.call('hset', KEYS[1], ARGV[1], 1)
redis.call('publish', KEYS[2], '0')
return 1
`

func TestParseReadsHeaderAndBody(t *testing.T) {
	s, err := Parse("scripts/lock.lua", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	want := &Script{
		Name: "lock", File: "scripts/lock.lua", Line: 1,
		Doc:   []string{"Takes the lock."},
		Keys:  []Param{{Name: "lock", Type: "hash", Line: 2}, {Name: "note", Type: "channel", Line: 3}},
		Args:  []Param{{Name: "owner", Type: "string", Line: 4}, {Name: "lease", Type: "ms", Line: 5}},
		Reply: "int", ReplyLine: 6, ReplyComment: "1 done; 0 not",
		Source: `local left = redis.call('pttl', KEYS[1])
if left > tonumber(ARGV[2]) then
return 0
end
redis.call('hset', KEYS[1], ARGV[1], 1)
redis.call('publish', KEYS[2], '0')
return 1`,
		SHA1: s.SHA1,
		Calls: []Call{
			{Line: 9, Must: true, Commands: []string{"pttl"}, Keys: []string{"*"}},
			{Line: 13, Must: true, Commands: []string{"hset"}, Keys: []string{"*"}},
			{Line: 14, Must: true, Commands: []string{"publish"}, Channels: []string{"*"}},
		},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
}

const notAKey = " is not one of KEYS; use a KEYS[i], a local assigned from one, a concatenation with one, or " +
	"string.sub(KEYS[i], n)"

// Each case changes the good script in one place.
func TestMistakesNameLineAndRemedy(t *testing.T) {
	for _, test := range []struct{ name, old, new, want string }{
		{"syntax", "if left > tonumber(ARGV[2]) then", "if left > tonumber(ARGV[2]) do",
			`10: syntax error near "do"; correct the Lua syntax`},
		{"unfinished", "return 1\n", "if true then return 1\n",
			`16: the end of the file comes too early; correct the Lua syntax`},
		{"no body", good[strings.Index(good, "local left"):], "",
			` the script has no body; write the body below the header`},
		{"goto", "  return 0\n", "  goto done\n", `11: Redis runs Lua 5.1, which has no goto; use a loop or an if`},
		{"label", "  return 0\n", "  ::done::\n", `11: Redis runs Lua 5.1, which has no labels; remove it`},
		{"_G", "return 1\n", "return _G.redis.call('get', 'other')\n",
			`15: _G is a global that Redis does not have; declare it with local`},
		{"keys elsewhere", "return 1\n", "return redis.call('zunionstore', KEYS[1], 1, 'other')\n",
			`15: the keys of redis.call('zunionstore', ...) cannot be checked; use other commands`},
		{"global assigned", "local left", "left",
			"9: left is a global, and Redis forbids scripts to make any; declare it with local\n10: left is a global that " +
				"Redis does not have; declare it with local"},
		{"global function", "return 1\n", "function f() end\nreturn 1\n",
			`15: f is a global, and Redis forbids scripts to make any; declare it with local`},
		{"global changed", "return 1\n", "KEYS[1] = 'a'\nreturn 1\n", `15: the script changes KEYS; assign to a local`},
		{"KEYS hidden", "return 1\n", "local KEYS = {}\nreturn 1\n", `15: a local hides KEYS; choose another name`},
		{"unknown global", "return 1\n", "return math.max(now, 1)\n",
			`15: now is a global that Redis does not have; declare it with local`},
		{"undeclared KEYS", "'0')", "KEYS[3])",
			`14: KEYS[3] is used but not declared; add a line "--! key 3 NAME TYPE" to the header`},
		{"undeclared ARGV", "'0')", "ARGV[3])",
			`14: ARGV[3] is used but not declared; add a line "--! arg 3 NAME TYPE" to the header`},
		{"index zero", "'0')", "ARGV[0])", `14: ARGV[0] never exists; count from 1`},
		{"unused KEYS", "redis.call('publish', KEYS[2], '0')\n", "",
			`3: key 2 note is declared, but the body does not use KEYS[2]; use KEYS[2] or remove the line`},
		{"unused ARGV", "tonumber(ARGV[2])", "5",
			`5: arg 2 lease is declared, but the body does not use ARGV[2]; use ARGV[2] or remove the line`},
		{"index by expression", "'0')", "ARGV[left])",
			`14: ARGV is used other than by a number, but no arg * is declared; index it by a number, or declare "--! arg * ` +
				`NAME TYPE"`},
		{"length", "return 1\n", "return #KEYS\n",
			`15: KEYS is used other than by a number, but no key * is declared; index it by a number, or declare "--! key * ` +
				`NAME TYPE"`},
		{"key is a literal", "'pttl', KEYS[1]", "'pttl', 'lock'", "9: the key of redis.call('pttl', ...)" + notAKey},
		{"key is the beginning of one", "'pttl', KEYS[1]", "'pttl', string.sub(KEYS[1], 1, 4)",
			"9: the key of redis.call('pttl', ...)" + notAKey},
		{"key is an argument", "return 1\n", "return redis.pcall(ARGV[1], ARGV[2])\n",
			"15: the key of redis.call(..., ...)" + notAKey},
		{"one key of several", "return 1\n", "return redis.call('del', KEYS[1], 'b')\n",
			"15: the key of redis.call('del', ...)" + notAKey},
		{"all of what are no keys", "return 1\n", "return redis.call('del', unpack({'a'}))\n",
			"15: the key of redis.call('del', ...)" + notAKey},
		{"some of the keys", "return 1\n", "return redis.call('del', unpack(KEYS, 2))\n",
			"15: KEYS is used other than by a number, but no key * is declared; index it by a number, or declare \"--! key * " +
				"NAME TYPE\"\n15: the key of redis.call('del', ...)" +
				notAKey},
		{"table is sometimes of keys", "return 1\n",
			"local t = {KEYS[1]}\nt[2] = 'b'\nreturn redis.call('del', unpack(t))\n",
			"17: the key of redis.call('del', ...)" + notAKey},
		{"table is filled by a function", "return 1\n",
			"local t = {KEYS[1]}\ntable.insert(t, 'b')\nreturn redis.call('del', unpack(t))\n",
			"17: the key of redis.call('del', ...)" + notAKey},
		{"table is what a call returns", "return 1\n",
			"local t = redis.call('hkeys', KEYS[1])\nreturn redis.call('del', unpack(t))\n",
			"16: the key of redis.call('del', ...)" + notAKey},
		{"table has another name", "return 1\n",
			"local t = {KEYS[1]}\nlocal u = t\nu[2] = 'b'\nreturn redis.call('del', unpack(t))\n",
			"18: the key of redis.call('del', ...)" + notAKey},
		{"table has another name, perhaps", "return 1\n",
			"local t = {KEYS[1]}\nlocal u = true and t\nu[2] = 'b'\nreturn redis.call('del', unpack(t))\n",
			"18: the key of redis.call('del', ...)" + notAKey},
		{"table is in another", "return 1\n",
			"local t = {KEYS[1]}\nlocal h = {t}\nh[1][2] = 'b'\nreturn redis.call('del', unpack(t))\n",
			"18: the key of redis.call('del', ...)" + notAKey},
		{"table is filled by a function, perhaps", "return 1\n",
			"local t = {KEYS[1]}\ntable.insert(t or {}, 'b')\nreturn redis.call('del', unpack(t))\n",
			"17: the key of redis.call('del', ...)" + notAKey},
		{"table is of itself", "return 1\n", "local t = {KEYS[1]}\nt[2] = unpack(t)\nreturn redis.call('del', unpack(t))\n",
			"17: the key of redis.call('del', ...)" + notAKey},
		{"table is empty", "return 1\n", "local t = {}\nreturn redis.call('del', unpack(t))\n",
			"16: the key of redis.call('del', ...)" + notAKey},
		{"local is sometimes a key", "return 1\n", "local k = KEYS[1]\nredis.call('del', k)\nk = 'b'\nreturn 1\n",
			"16: the key of redis.call('del', ...)" + notAKey},
		{"no key", "return 1\n", "return redis.call('get')\n", `15: redis.call('get') has no key; pass one of KEYS`},
		{"call passed on", "return 1\n", "return pcall(redis.call, 'get', 'x')\n",
			`15: redis.call is passed on, and its keys cannot be checked; call it where it stands`},
		{"redis passed on", "return 1\n", "local r = redis\nreturn r.call('get', 'x')\n",
			`15: redis is passed on, and the keys of its calls cannot be checked; write redis.call where it is called`},
		{"other name", "--! script lock", "--! script unlock",
			`1: the script is called "unlock", its file "lock"; write "--! script lock" or rename the file`},
		{"no name", "--! script lock\n", "",
			`1: the header does not name the script; start the file with "--! script lock"`},
		{"unknown line", "--! key 1", "--! kez 1",
			`2: a header line says "kez", which is not known; write "--! script", "--! key", "--! arg", "--! reply", ` +
				`"--! needs" or "--! bound"` + "\n" +
				`3: key "2" should be key 1; number the lines 1, 2, 3 in order` + "\n" +
				`14: KEYS[2] is used but not declared; add a line "--! key 2 NAME TYPE" to the header`},
		{"too few words", "--! arg 2 lease ms", "--! arg 2 lease",
			"5: the arg line has 3 words after --!, not 4; write \"--! arg N NAME TYPE\", or * for N where there is one for " +
				"each item of a batch\n" +
				`10: ARGV[2] is used but not declared; add a line "--! arg 2 NAME TYPE" to the header`},
		{"unknown type", "lease ms", "lease seconds", `5: "seconds" is not a type of arg; use one of string, ms, int, bool`},
		{"wrong number", "--! arg 2", "--! arg 3", `5: arg "3" should be arg 2; number the lines 1, 2, 3 in order`},
		{"name that begins with a digit", "--! key 2 note", "--! key 2 2nd",
			`3: "2nd" makes no Go name; use ASCII letters, digits and _, a letter first`},
		{"name with a sign", "--! arg 2 lease", "--! arg 2 lease-time",
			`5: "lease-time" makes no Go name; use ASCII letters, digits and _, a letter first`},
		{"needs nothing", "--! reply int   1 done; 0 not\n", "--! reply int   1 done; 0 not\n--! needs\n",
			`7: the needs line names no command; write "--! needs COMMAND...", or remove the line`},
		{"needs what it does not send", "--! reply int   1 done; 0 not\n", "--! reply int   1 done; 0 not\n--! needs get\n",
			`7: the script needs get, but sends no such command by redis.pcall; remove it from the line`},
		{"a bound without a unit", "--! reply int   1 done; 0 not\n", "--! reply int   1 done; 0 not\n--! bound 5 calls 1\n",
			`7: the bound is not one of work; write one line such as "--! bound 300 calls 20 KB"; the unit is KB or MB`},
		{"a second bound", "--! reply int   1 done; 0 not\n",
			"--! reply int   1 done; 0 not\n--! bound 5 calls 1 KB\n--! bound 6 calls 1 KB\n",
			`8: the bound is not one of work; write one line such as "--! bound 300 calls 20 KB"; the unit is KB or MB`},
		{"command is an argument", "redis.call('publish', KEYS[2], '0')", "redis.call(ARGV[1], KEYS[2], '0')",
			"14: the command of a redis.call is not known; write the command, or pass it as an argument of a type such as " +
				"publish|spublish"},
		{"command is an argument of two words", "--! arg 1 owner string", "--! arg 1 owner publish|",
			`4: a word of "publish|" is empty; write words such as publish|spublish`},
		{"form without a word", "--! key 2 note  channel", "--! key 2 note channel a|",
			`3: a form of "a|" is empty; write forms such as NAME or mortise:1:tick:{NAME}`},
		{"two keys of one name", "--! key 2 note", "--! key 2 lock",
			`3: the name lock is that of line 2 (case and _ aside); choose another: both become fields of one Go struct`},
		{"two args of one Go name", "--! arg 2 lease", "--! arg 2 own_er",
			`5: the name own_er is that of line 4 (case and _ aside); choose another: both become fields of one Go struct`},
		{"no reply", "--! reply int   1 done; 0 not\n", "",
			`1: the header declares no reply; add a line "--! reply TYPE COMMENT" with a type of int, ints, strings`},
		{"unknown reply", "reply int ", "reply number ",
			`6: the reply has no known type; write "--! reply TYPE COMMENT" with a type of int, ints, strings`},
		{"header below", "return 1\n", "return 1\n--! arg 3 late int\n",
			`16: a header line stands outside the header; move it up: the header is the file's first lines, with none ` +
				`between them`},
		{"mixed keys", "--! key 2 note  channel", "--! key * note  channel",
			"3: numbered keys and * are mixed: a batch is split by slot, and no key is in every slot; give each item of the " +
				"batch its own key, or pass the other as an argument\n6: a script with key * replies int; reply ints, one for " +
				"each key"},
		{"arg * without key *", "--! arg 2 lease ms", "--! arg * lease ms",
			`5: arg * lease repeats for each key, but the keys are numbered; declare the keys with "--! key * NAME TYPE", or ` +
				`number the argument`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if strings.Count(good, test.old) == 0 {
				t.Fatalf("the good script has no %q", test.old)
			}
			_, err := Parse("scripts/lock.lua", []byte(strings.Replace(good, test.old, test.new, 1)))
			want := "scripts/lock.lua:" + strings.ReplaceAll(test.want, "\n", "\nscripts/lock.lua:")
			if got := errText(err); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// The scripts of a folder share a Go package; an item of a batch has its keys and its arguments in one Go struct.
func TestNamesOfAFolder(t *testing.T) {
	const one = "--! key 1 a hash\n--! arg 1 a int\n--! reply int\nreturn redis.call('hincrby', KEYS[1], 'n', ARGV[1])\n"
	const many = "--! key * a hash\n--! arg 1 A int\n--! arg * b int\n--! reply ints\n" +
		"return {redis.call('hmget', KEYS[#KEYS], ARGV[1], ARGV[#ARGV])}\n"
	for _, test := range []struct {
		name  string
		files map[string]string // without their first lines
		want  string
	}{
		{"good", map[string]string{"one": one, "many": many}, ""},
		{"scripts of one Go name", map[string]string{"aB": one, "a_b": one},
			"a_b.lua:1: the name a_b is that of aB.lua (case and _ aside); rename one: both become Go constants"},
		{"script of no Go name", map[string]string{"set-it": one},
			`set-it.lua:1: "set-it" makes no Go name; use ASCII letters, digits and _, a letter first`},
		{"item of one name twice", map[string]string{"many": strings.Replace(many, "* b", "* a", 1)},
			"many.lua:4: the name a is that of line 2 (case and _ aside); choose another: both become fields of one Go struct"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			files := fstest.MapFS{"go.mod": {Data: []byte("module m")}}
			for name, src := range test.files {
				files[name+".lua"] = &fstest.MapFile{Data: []byte("--! script " + name + "\n" + src)}
			}
			if err := os.CopyFS(dir, files); err != nil {
				t.Fatal(err)
			}
			_, err := ParseDir(".")
			if got := errText(err); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestBatchMistakes(t *testing.T) {
	const header = "--! script many\n--! key * lock hash\n--! arg 1 track bool\n--! arg * lease ms\n--! reply ints\n"
	for _, test := range []struct{ name, body, want string }{
		{"good", "for i, k in ipairs(KEYS) do redis.call('pexpire', k, ARGV[i + 1]) end return ARGV[1]", ""},
		{"good, by number", "redis.call('pexpire', KEYS[1], ARGV[2]) return ARGV[1]", ""},
		{"keys unused", "return {ARGV[1], ARGV[#ARGV]}",
			"many.lua:2: key * lock is declared, but the body does not index KEYS by an expression; use KEYS[EXPRESSION] or " +
				"remove the line"},
		{"args unused", "return {ARGV[1], #KEYS}",
			"many.lua:4: arg * lease is declared, but the body does not index ARGV by an expression; use ARGV[EXPRESSION] or " +
				"remove the line"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse("many.lua", []byte(header+test.body))
			if got := errText(err); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestKeysMayBeBuilt(t *testing.T) {
	const header = "--! script f\n--! key 1 a hash\n--! key 2 b hash\n--! reply int\n"
	for _, body := range []string{
		"local k = KEYS[1] local j = k redis.call('get', j) return redis.call('del', k, KEYS[2])",
		"local k if redis.call('exists', KEYS[1]) == 1 then k = KEYS[1] else k = KEYS[2] end return " +
			"redis.call('get', k)",
		"return redis.call('get', KEYS[1] .. ':' .. redis.call('get', 'x' .. KEYS[2]))",
		"return redis.call('get', redis.call('time')[1] == '0' and KEYS[1] or KEYS[2])",
		"local function f(n) return redis.call('get', KEYS[1]) + n end return f(1) + redis.call('BITOP', 'and', " +
			"KEYS[1], KEYS[2])",
		"local t = {KEYS[1]} for i = 1, 2 do t[#t + 1] = KEYS[2] .. i end return redis.call('del', unpack(t))",
		"local k = nil for i = 1, 2 do k = KEYS[1] .. i end return redis.call('rename', k, KEYS[2], 'x')",
	} {
		if _, err := Parse("f.lua", []byte(header+body)); err != nil {
			t.Errorf("%s:\n%s", body, err)
		}
	}
}

func TestNeedsFollowTheText(t *testing.T) {
	const header = "--! script f\n--! key 1 a hash NAME\n--! key 2 b hash b:{NAME}\n--! arg 1 say publish|spublish\n" +
		"--! reply int\n"
	for _, test := range []struct {
		needs, body string
		want        Needs
	}{
		{"", "return redis.call('GET', KEYS[1])", Needs{Must: []string{"get"}}},
		{"", "return redis.pcall('get', KEYS[1])", Needs{May: []string{"get"}}},
		{"", "redis.pcall('get', KEYS[1]) return redis.call('get', KEYS[1])", Needs{Must: []string{"get"}}},
		{"get", "return redis.pcall('get', KEYS[1] .. ':x')", Needs{Must: []string{"get"}}},
		{"", "return redis.pcall('get', 'x:' .. KEYS[2])", Needs{May: []string{"get"}, MayKeys: []string{"x:b:{NAME"}}},
		{"get", "return redis.pcall('get', 'x:' .. KEYS[2])", Needs{Must: []string{"get"}, Keys: []string{"x:b:{NAME"}}},
		{"", "return redis.call('info', 'server')", Needs{Must: []string{"info"}}},
		{"", "local c = KEYS[1] == 'a' and 'hget' or 'hset' return redis.call(c, KEYS[1], 'f')",
			Needs{Must: []string{"hget", "hset"}}},
		{"", "return redis.call(ARGV[1], 'to:' .. KEYS[1] .. ':x', '1')",
			Needs{Must: []string{"publish", "spublish"}, Channels: []string{"to:NAME"}}},
		{"", "local k k = 'x:' .. KEYS[1] if k then k = 'y:' .. KEYS[1] end return redis.call('get', k)",
			Needs{Must: []string{"get"}, Keys: []string{"x:NAME", "y:NAME"}}},
		{"", "local x, k = false, 'x:' .. KEYS[1] x = ARGV[1] return redis.call('get', k)",
			Needs{Must: []string{"get"}, Keys: []string{"x:NAME"}}},
		{"", "local t = {} t[1] = 'x:' .. KEYS[1] return redis.call('del', unpack(t))",
			Needs{Must: []string{"del"}, Keys: []string{"x:NAME"}}},
		{"", "return redis.call('get', string.sub(KEYS[2], 3))", Needs{Must: []string{"get"}, Keys: []string{"{NAME"}}},
	} {
		head := header
		if test.needs != "" {
			head += "--! needs " + test.needs + "\n"
		}
		s, err := Parse("f.lua", []byte(head+"local use = {KEYS[1], KEYS[2], ARGV[1]}\n"+test.body))
		if err != nil {
			t.Errorf("%s:\n%s", test.body, err)
			continue
		}
		test.want.Keys = append([]string{"NAME", "b:{NAME"}, test.want.Keys...)
		if got := s.Needs(); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", test.body, got, test.want)
		}
	}
}

func TestStripKeepsStrings(t *testing.T) {
	for _, test := range []struct{ src, want string }{
		{"  a = 1\n\n\t b = 2  \n", "a = 1\nb = 2"},
		{"a = '--no' -- yes", "a = '--no'"},
		{`a = "\"--" .. '\\' -- b`, `a = "\"--" .. '\\'`},
		{"a = 1 --[[ b\n  c ]] d = 2", "a = 1\nd = 2"},
		{"a = --[==[ ]] ]==] 1", "a = 1"},
		{"a = [[\n  -- kept\n\n  ]] -- gone", "a = [[\n  -- kept\n\n  ]]"},
		{"a = 'x\\\n   y'", "a = 'x\\\n   y'"},
		{"a = t[ [[x]] ]", "a = t[ [[x]] ]"},
		{"--[ not long\na = 1", "a = 1"},
		{"--", ""},
	} {
		if got := strip(test.src); got != test.want {
			t.Errorf("strip(%q) = %q, want %q", test.src, got, test.want)
		}
	}
}

func TestStripKeepsTheMeaning(t *testing.T) {
	check.Long(t)
	const dir = "../../../scripts"
	f, err := ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range f.Scripts {
		if strings.Contains(s.Source, "--") || strings.Contains(s.Source, "\n ") {
			t.Errorf("%s is not stripped:\n%s", s.Name, s.Source)
		}
		src, err := os.ReadFile(filepath.Join(dir, s.Name+".lua"))
		if err != nil {
			t.Fatal(err)
		}
		expanded := f.constants.fill(strings.Join(f.fragments.expand(s.File, string(src)).lines, "\n"))
		want := strip(expanded)
		if s.Batch() {
			want = locals + want
		}
		if want != s.Source {
			t.Errorf("%s is stripped otherwise", s.Name)
		}
		stripKeepsTheMeaning(t, expanded)
	}
}
