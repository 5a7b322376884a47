package constants

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"github.com/mortise-go/mortise/gen/internal/luascript"
)

func TestStructsCompile(t *testing.T) {
	for _, test := range []struct{ name, args, body string }{
		{"with a duration", "--! arg 1 lease ms\n", "return redis.call('pexpire', KEYS[1], ARGV[1])"},
		{"without a duration", "--! arg 1 holds int\n", "return redis.call('incrby', KEYS[1], ARGV[1])"},
		{"without arguments", "", "return redis.call('del', KEYS[1])"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := luascript.Parse("s.lua",
				[]byte("--! script s\n--! key 1 lock string\n"+test.args+"--! reply int\n"+test.body))
			if err != nil {
				t.Fatal(err)
			}
			src, err := Structs("scripts", []*luascript.Script{s})
			if err != nil {
				t.Fatal(err)
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, "structs_gen.go", src, 0)
			if err != nil {
				t.Fatal(err)
			}
			conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
			if _, err := conf.Check("scripts", fset, []*ast.File{file}, nil); err != nil {
				t.Errorf("%v in\n%s", err, src)
			}
		})
	}
}
