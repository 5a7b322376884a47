package luascript

import (
	"os"
	"path/filepath"
	"testing"
)

func TestIncludes(t *testing.T) {
	const (
		header = "--! script lock\n--! key 1 a hash\n--! key 2 b hash\n--! reply int\n--\n-- Doc.\n"
		get    = "--! fragment get key out\n--\n-- Reads a key.\nlocal value = redis.call('get', key) -- the " +
			"key\nout = value\n"
		twice = "--! fragment twice out\n--! include get key=KEYS[1] out=out\n--! include get key=KEYS[2] out=out\n"
	)
	for _, test := range []struct {
		name, body, get, twice string
		source, mistake        string
	}{
		{
			name: "parameters are filled in, also those of a fragment in a fragment", get: get, twice: twice,
			body: "local x\n  --! include twice out=x\nreturn x or 'out'",
			source: "local x\nlocal value = redis.call('get', KEYS[1])\nx = value\nlocal value = " +
				"redis.call('get', KEYS[2])\nx = value\n" +
				"return x or 'out'",
		},
		{
			name: "a mistake in a fragment is at the fragment's line", get: get, twice: twice,
			body: "local x\n--! include twice out=x\n--! include get key='k' out=x\nreturn x",
			mistake: "include/get.lua:4: the key of redis.call('get', ...) is not one of KEYS; use a KEYS[i], a " +
				"local assigned from one, a concatenation with one, or string.sub(KEYS[i], n)",
		},
		{
			name: "a mistake below an include is at the script's line", get: get, twice: twice,
			body:    "local x\n--! include twice out=x\nreturn y",
			mistake: "lock.lua:9: y is a global that Redis does not have; declare it with local",
		},
		{
			name: "unknown", get: get, twice: twice,
			body:    "local x\n--! include twice out=x\n--! include set key=x\nreturn x",
			mistake: `lock.lua:9: there is no fragment "set key=x"; name one of the folder include: get, twice`,
		},
		{
			name: "other parameters", get: get, twice: twice,
			body: "local x\n--! include twice out=x\n--! include get out=x key=KEYS[1]\nreturn x .. KEYS[2]",
			mistake: "lock.lua:9: the fragment get takes other parameters; give each of its parameters, in order, " +
				"as PARAM=EXPRESSION: key, out",
		},
		{
			name: "itself", get: "--! fragment get\n--! include twice out=x\n",
			twice:   "--! fragment twice out\n--! include get\n",
			body:    "--! include get\nreturn KEYS[1] .. KEYS[2]",
			mistake: "include/twice.lua:2: the fragment get includes itself; remove the line",
		},
		{
			name: "unused", get: get, twice: twice,
			body:    "local x\n--! include get key=KEYS[1] out=x\nreturn KEYS[2] .. x",
			mistake: "include/twice.lua:1: no script includes the fragment twice; include it, or remove the file",
		},
		{
			name: "without its name", get: "return 1\n", twice: "--! fragment twice out\nout = 1",
			body:    "local x\n--! include twice out=x\nreturn KEYS[2] .. KEYS[1]",
			mistake: `include/get.lua:1: the fragment does not name itself; start it with "--! fragment get PARAM..."`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			for name, src := range map[string]string{"go.mod": "module m", "lock.lua": header + test.body,
				"include/get.lua": test.get, "include/twice.lua": test.twice} {
				file := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(src), 0o644); err != nil {
					t.Fatal(err)
				}
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
