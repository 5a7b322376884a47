package luascript

import (
	"cmp"
	"os"
	"testing"
	"testing/fstest"
)

const waitConstants = "-- How long waiters wait.\n\n--! const kept 60000 ms how long a queue is kept\n" +
	"--! const most 64 count how many waiters are told\n"

// noName is what is said of a bare number.
func noName(number string) string {
	return number + ` has no name; declare it in constants.lua with "--! const NAME ` + number + ` UNIT TEXT", ` +
		"and write the name"
}

func TestConstants(t *testing.T) {
	const (
		header = "--! script lock\n--! key 1 a hash NAME\n--! reply int\n--\n-- Kept for kept.\n"
		both   = "local n = kept + most\nreturn redis.call('get', KEYS[1])"
	)
	for _, test := range []struct {
		name, body string
		constants  string // instead of waitConstants
		fragment   string // include/f.lua
		source     string
		mistake    string
	}{
		{name: "names become numbers, in fragments and their parameters, too",
			body:     "local x\n--! include f n=kept\nreturn redis.call('pexpire', KEYS[1], x) -- kept",
			fragment: "--! fragment f n\nx = n * most\n",
			source:   "local x\nx = 60000 * 64\nreturn redis.call('pexpire', KEYS[1], x)"},
		{name: "a number between two texts is a part of one text",
			body:   "local m = 'n' .. kept .. ':' .. most\nreturn redis.call('get', KEYS[1]) == ('n' .. most .. '')",
			source: "local m = 'n60000:' .. 64\nreturn redis.call('get', KEYS[1]) == ('n64')"},
		{name: "but not where something else binds more tightly",
			body: "local s = kept\nlocal m = #'n' .. s .. 'x' .. -most .. ':'\n" +
				"return redis.call('get', KEYS[1]) .. tostring 'a' .. most .. 'b'",
			source: "local s = 60000\nlocal m = 1 .. s .. 'x' .. -64 .. ':'\n" +
				"return redis.call('get', KEYS[1]) .. tostring 'a' .. 64 .. 'b'"},
		{name: "nor where Lua writes the number in another way",
			body:      "return redis.call('get', KEYS[1]) == 'n' .. big .. 'x' .. small .. 'y'",
			constants: "--! const big 100000000000000 count x\n--! const small 0.5 number x",
			source:    "return redis.call('get', KEYS[1]) == 'n' .. 100000000000000 .. 'x' .. 0.5 .. 'y'"},
		{name: "the length of a text is a number, but not in a text",
			body: both + " .. '#\\'' .. string.sub('a', #'most' + 1) .. \"#'most'\"",
			source: "local n = 60000 + 64\n" +
				"return redis.call('get', KEYS[1]) .. '#\\'' .. string.sub('a', 4 + 1) .. \"#'most'\""},
		{name: "0, 1, 2 and indexes need no name",
			body:   "local t = {0, -1, 2}\nlocal n = kept + t[3 * most + 4]\n" + "return redis.call('get', KEYS[1])",
			source: "local t = {0, -1, 2}\nlocal n = 60000 + t[3 * 64 + 4]\nreturn redis.call('get', KEYS[1])"},
		{name: "other numbers do", body: both + " + 3 - -0.5",
			mistake: "lock.lua:7: " + noName("3") + "\nlock.lua:7: " + noName("0.5")},
		{name: "in a fragment, too", body: "local x\n--! include f\n" + both,
			fragment: "--! fragment f\n-- A fragment.\nx = {[7] = 8}\n",
			mistake:  "include/f.lua:3: " + noName("7") + "\ninclude/f.lua:3: " + noName("8")},
		{name: "unknown", body: both + " + kepd",
			mistake: "lock.lua:7: kepd is a global that Redis does not have; " +
				"declare it with local, or as a constant in constants.lua"},
		{name: "unused", body: "return redis.call('pexpire', KEYS[1], kept)",
			mistake: "constants.lua:4: no script uses the constant most; use it, or remove the line"},
		{name: "a local", body: "local kept = 1\n" + both,
			mistake: "lock.lua:6: kept is the constant of constants.lua:3; choose another name"},
		{name: "a field", body: both + " + ({}).most",
			mistake: "lock.lua:7: most is the constant of constants.lua:4; choose another name"},
		{name: "duplicate", body: both, constants: waitConstants + "--! const most_ 1 count x\n--! const mo_st 1 bytes x\n",
			mistake: "constants.lua:5: \"most_\" is no name of a constant; " +
				"use lower-case letters, digits and _, a letter first\n" +
				"constants.lua:5: the name most_ is that of line 4 (_ aside); choose another\n" +
				"constants.lua:5: no script uses the constant most_; use it, or remove the line\n" +
				"constants.lua:6: the name mo_st is that of line 4 (_ aside); choose another\n" +
				"constants.lua:6: the name mo_st is that of line 5 (_ aside); choose another\n" +
				"constants.lua:6: no script uses the constant mo_st; use it, or remove the line"},
		{name: "a unit that is none", body: both,
			constants: "--! const kept 60000 ms x\n--! const most 64 waiters x\n",
			mistake:   `constants.lua:2: "waiters" is not a unit; use one of ms, us, count, bytes, number`},
		{name: "values that are none", body: both,
			constants: "--! const kept 0.5 ms x\n--! const most 064 number x\n",
			mistake: `constants.lua:1: "0.5" is no value in ms; write a whole number above zero, as 250` + "\n" +
				`constants.lua:2: "064" is no value in number; write a number, as 250`},
		{name: "a name with a meaning", body: both, constants: waitConstants + "--! const table 1 count x\n",
			mistake: "constants.lua:5: the name table has a meaning in Lua; choose another\n" +
				"constants.lua:5: no script uses the constant table; use it, or remove the line"},
		{name: "other lines", body: both, constants: waitConstants + "--! const x 1 ms\nlocal x = 1\n",
			mistake: `constants.lua:5: the line declares no constant; write "--! const NAME VALUE UNIT TEXT", or a comment` +
				"\nconstants.lua:6: the line declares no constant; " +
				`write "--! const NAME VALUE UNIT TEXT", or a comment`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			file := func(src string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(src)} }
			files := fstest.MapFS{"go.mod": file("module m"), "lock.lua": file(header + test.body),
				"constants.lua": file(cmp.Or(test.constants, waitConstants))}
			if test.fragment != "" {
				files["include/f.lua"] = file(test.fragment)
			}
			if err := os.CopyFS(".", files); err != nil {
				t.Fatal(err)
			}
			f, err := ReadDir(".")
			if got := errText(err); got != test.mistake {
				t.Fatalf("got\n%s\nwant\n%s", got, test.mistake)
			}
			if err == nil && f.Scripts[0].Source != test.source {
				t.Errorf("got\n%s\nwant\n%s", f.Scripts[0].Source, test.source)
			}
		})
	}
}
