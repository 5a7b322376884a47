package luascript

import (
	"cmp"
	"os"
	"testing"
	"testing/fstest"
)

func TestIncludes(t *testing.T) {
	const (
		header = "--! script lock\n--! key 1 a hash\n--! key 2 b hash\n--! reply int\n--\n-- Doc.\n"
		get    = "--! fragment get key out\n--\n-- Reads a key.\nlocal value = redis.call('get', key) -- the " +
			"key\nout = value\n"
		twice = "--! fragment twice out\n--! include get key=KEYS[1] out=out\n--! include get key=KEYS[2] out=out\n"
	)
	for _, test := range []struct {
		name, body      string
		get, twice      string // instead of those above
		source, mistake string
	}{
		{name: "parameters are filled in, also those of a fragment in a fragment",
			body: "local x\n  --! include twice out=x\nreturn x or 'out'",
			source: "local x\nlocal value = redis.call('get', KEYS[1])\nx = value\nlocal value = " +
				"redis.call('get', KEYS[2])\nx = value\nreturn x or 'out'"},
		{name: "a mistake in a fragment is at the fragment's line",
			body:    "local x\n--! include twice out=x\n--! include get key='k' out=x\nreturn x",
			mistake: "include/get.lua:4: the key of redis.call('get', ...)" + notAKey},
		{name: "a mistake below an include is at the script's line",
			body:    "local x\n--! include twice out=x\nreturn y",
			mistake: "lock.lua:9: y is a global that Redis does not have; declare it with local"},
		{name: "unknown", body: "local x\n--! include twice out=x\n--! include set key=x\nreturn x",
			mistake: `lock.lua:9: there is no fragment "set key=x"; name one of the folder include: get, twice`},
		{name: "other parameters",
			body: "local x\n--! include twice out=x\n--! include get out=x key=KEYS[1]\nreturn x .. KEYS[2]",
			mistake: "lock.lua:9: the fragment get takes other parameters; give each of its parameters, in order, " +
				"as PARAM=EXPRESSION: key, out"},
		{name: "itself", body: "--! include get\nreturn KEYS[1] .. KEYS[2]",
			get: "--! fragment get\n--! include twice out=x\n", twice: "--! fragment twice out\n--! include get\n",
			mistake: "include/twice.lua:2: the fragment get includes itself; remove the line"},
		{name: "unused", body: "local x\n--! include get key=KEYS[1] out=x\nreturn KEYS[2] .. x",
			mistake: "include/twice.lua:1: no script includes the fragment twice; include it, or remove the file"},
		{name: "without its name", body: "local x\n--! include twice out=x\nreturn KEYS[2] .. KEYS[1]",
			get: "return 1\n", twice: "--! fragment twice out\nout = 1",
			mistake: `include/get.lua:1: the fragment does not name itself; start it with "--! fragment get PARAM..."`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			file := func(src string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(src)} }
			if err := os.CopyFS(dir, fstest.MapFS{"go.mod": file("module m"), "lock.lua": file(header + test.body),
				"include/get.lua": file(cmp.Or(test.get, get)), "include/twice.lua": file(cmp.Or(test.twice, twice))}); err != nil {
				t.Fatal(err)
			}
			all, err := ParseDir(".")
			if got := errText(err); got != test.mistake {
				t.Fatalf("got  %s\nwant %s", got, test.mistake)
			}
			if err == nil && all[0].Source != test.source {
				t.Errorf("got\n%s\nwant\n%s", all[0].Source, test.source)
			}
		})
	}
}
