package commands

import (
	"fmt"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/mortise-go/mortise/gen/internal/luascript"
)

const lockLua = `--! script lock
--! key 1 lock  hash
--! arg 1 owner string
--! arg 2 lease_time ms
--! arg 3 holds int
--! arg 4 track bool
--! reply int   1 done
return redis.call('hset', KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
`

const manyLua = `--! script many
--! key * lock hash
--! arg 1 track bool
--! arg * lease ms
--! reply ints
for i, k in ipairs(KEYS) do redis.call('pexpire', k, ARGV[i + 1]) end
return {ARGV[1]}
`

const goodGo = `package proto

import (
	"context"
	"time"
)

type Commands interface {
	//mortise:script lock
	Lock(ctx context.Context, k LockKeys, a LockArgs) (int64, error)
	//mortise:script many batch
	Many(ctx context.Context, a ManyArgs, items []ManyItem, out []ManyReply)
}

type LockKeys struct {
	Lock string
}

type LockArgs struct {
	Owner     string
	LeaseTime time.Duration
	Holds     int64
	Track     bool
}

type ManyArgs struct {
	Track bool
}

type ManyItem struct {
	Lock  string
	Lease time.Duration
}

type ManyReply struct {
	Value int64
	Err   error
}

var _ = time.Second
var _ context.Context
`

const lockArgsWrong = "commands.go:19: proto.LockArgs is not what scripts/lock.lua:3 and the lines below it declare " +
	"for Lock; write struct{Owner string; LeaseTime time.Duration; Holds int64; Track bool}, or change the header"

// Each case changes the good interface in one place.
var mistakes = []struct{ name, old, new, want string }{
	{"good", "", "", ""},
	{"type errors elsewhere", "var _ = time.Second", "var _ = undeclared", ""},
	{"field missing", "	Holds     int64\n", "", lockArgsWrong},
	{"field extra", "	Holds     int64\n", "	Holds     int64\n	Fair      bool\n", lockArgsWrong},
	{"field's type", "	Holds     int64\n", "	Holds     int\n", lockArgsWrong},
	{"duration as int64", "	LeaseTime time.Duration\n", "	LeaseTime int64\n", lockArgsWrong},
	{"key's type", "	Lock string\n", "	Lock []byte\n",
		`commands.go:15: proto.LockKeys is not what scripts/lock.lua:2 and the lines below it declare for Lock; write ` +
			`struct{Lock string}, or change the header`},
	{"field order", "	Holds     int64\n	Track     bool\n", "	Track     bool\n	Holds     int64\n", lockArgsWrong},
	{"reply's type", "a LockArgs) (int64, error)", "a LockArgs) ([]int64, error)",
		`commands.go:10: Lock returns ([]int64, error), but scripts/lock.lua:7 replies int; return (int64, error)`},
	{"no error", "a LockArgs) (int64, error)", "a LockArgs) int64",
		`commands.go:10: Lock returns (int64), but scripts/lock.lua:7 replies int; return (int64, error)`},
	{"no arguments", ", a LockArgs)", ")",
		`commands.go:10: Lock takes other parameters than scripts/lock.lua:2 and the lines below it declare; write ` +
			`Lock(ctx context.Context, k LockKeys, a LockArgs) (int64, error)`},
	{"no context", "Lock(ctx context.Context", "Lock(ctx string",
		`commands.go:10: Lock takes other parameters than scripts/lock.lua:2 and the lines below it declare; write ` +
			`Lock(ctx context.Context, k LockKeys, a LockArgs) (int64, error)`},
	{"unknown script", "//mortise:script lock", "//mortise:script look",
		"commands.go:9: there is no script look; write look.lua, or name one of lock, many\nscripts/lock.lua:1: no method " +
			"sends the script lock; add a method with the directive " +
			`"//mortise:script lock" to Commands at commands.go:8`},
	{"script without method",
		"	//mortise:script lock\n	Lock(ctx context.Context, k LockKeys, a LockArgs) (int64, error)\n", "",
		`scripts/lock.lua:1: no method sends the script lock; add a method with the directive "//mortise:script lock" to ` +
			`Commands at commands.go:8`},
	{"script with two methods", "	//mortise:script many",
		"	//mortise:script lock\n	Again(ctx context.Context, k LockKeys, a LockArgs) (int64, error)\n	//mortise:script many",
		`commands.go:11: a second method sends the script lock; let one method send it`},
	{"no directive", "	//mortise:script many", "	//mortise:script lock\n	Again()\n	//mortise:script many",
		"commands.go:11: a second method sends the script lock; let one method send it\ncommands.go:12: Again takes other " +
			"parameters than scripts/lock.lua:2 and the lines below it declare; write Again(ctx context.Context, k " +
			"AgainKeys, a AgainArgs) (int64, error)"},
	{"method without directive", "	//mortise:script many", "	Again()\n	//mortise:script many",
		`commands.go:11: Again has 0 directives; write one line "//mortise:script NAME" above it`},
	{"malformed directive", "//mortise:script lock", "//mortise:script lock batched",
		"commands.go:9: the directive of Lock is malformed; write \"//mortise:script NAME\" or \"//mortise:script NAME " +
			"batch\", or \"batch split\"\nscripts/lock.lua:1: no method sends the script lock; add a method with the " +
			"directive " +
			`"//mortise:script lock" to Commands at commands.go:8`},
	{"embedded interface", "	//mortise:script many", "	error\n	//mortise:script many",
		`commands.go:8: the interface embeds what is not an interface of its package; list its methods here, each with ` +
			`its directive, or embed an interface that this package declares`},
	{"batch of numbered keys", "//mortise:script lock", "//mortise:script lock batch",
		`commands.go:9: Lock is a batch, but scripts/lock.lua:2 declares numbered keys; write "//mortise:script lock", or ` +
			`declare the keys with "--! key * NAME TYPE"`},
	{"key * without batch", "many batch", "many",
		`commands.go:11: Many is no batch, but scripts/many.lua:2 declares key *; write "//mortise:script many batch"`},
	{"batch without out", ", out []ManyReply)", ")",
		`commands.go:12: Many takes other parameters than scripts/many.lua:2 and the lines below it declare; write ` +
			`Many(ctx context.Context, a ManyArgs, items []ManyItem, out []ManyReply)`},
	{"item lacks field", "	Lease time.Duration\n", "",
		`commands.go:30: proto.ManyItem is not what scripts/many.lua:2 and the lines below it declare for Many; write ` +
			`struct{Lock string; Lease time.Duration}, or change the header`},
	{"reply struct", "	Value int64\n", "	Value int\n",
		`commands.go:35: proto.ManyReply is not what Many answers for each item by scripts/many.lua:5; write struct { ` +
			`Value int64; Err error }`},
	{"type errors that matter", "	Holds     int64\n", "	Holds     Int64\n",
		lockArgsWrong + "\nproto/commands.go:22:12: undefined: Int64"},
	{"no interface", "type Commands interface", "type Others interface",
		`package example.test/CASE declares no interface Commands`},
}

func TestMistakesNameLineAndRemedy(t *testing.T) {
	// One module with a package for each case, so that they are loaded at once.
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.test\n\ngo 1.26\n")
	write(t, filepath.Join(dir, "scripts", "lock.lua"), lockLua)
	write(t, filepath.Join(dir, "scripts", "many.lua"), manyLua)
	for i, test := range mistakes {
		if strings.Count(goodGo, test.old) == 0 {
			t.Fatalf("%s: the good interface has no %q", test.name, test.old)
		}
		write(t, filepath.Join(dir, folder(i), "commands.go"), strings.Replace(goodGo, test.old, test.new, 1))
	}
	t.Chdir(dir)
	scripts, err := luascript.ParseDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	pkgs, err := packages.Load(&packages.Config{Mode: loadMode, Fset: fset, ParseFile: parse}, "./...")
	if err != nil {
		t.Fatal(err)
	}
	byFolder := map[string]*packages.Package{}
	for _, p := range pkgs {
		byFolder[filepath.Base(p.PkgPath)] = p
	}
	for i, test := range mistakes {
		t.Run(test.name, func(t *testing.T) {
			_, err := check(fset, byFolder[folder(i)], "Commands", scripts)
			got := ""
			if err != nil {
				names := strings.NewReplacer(filepath.Join(dir, folder(i)), "proto", folder(i)+"/", "", folder(i), "CASE")
				got = names.Replace(err.Error())
			}
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func folder(i int) string { return fmt.Sprintf("case_%02d", i) }

func TestLoadRefusesWhatItCannotFind(t *testing.T) {
	for _, test := range []struct{ iface, want string }{
		{"example.test/proto", `"example.test/proto" does not name an interface; write IMPORT/PATH.NAME`},
		{"./testdata/golden/proto.Commands",
			`there is no package ./testdata/golden/none; name the one that holds the scripts`},
	} {
		if _, err := Load(test.iface, "./testdata/golden/none"); err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
