package wire_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// The port says some of the numbers to the authors of stores, with their values.
func TestThePortSaysWhatTheScriptsDo(t *testing.T) {
	for _, test := range []struct {
		name       string
		port, wire int64
	}{
		{"MaxCount", backend.MaxCount, wire.PermitsMost},
		{"MaxLatch", backend.MaxLatch, wire.LatchMost},
		{"Patience", int64(backend.Patience), int64(wire.PatienceTimes * backend.Absence)},
	} {
		if test.port != test.wire {
			t.Errorf("backend.%s is %d; the scripts have %d", test.name, test.port, test.wire)
		}
	}
}

// Lua passes so many values to a command: a request's permits, one for each.
func TestTheScriptsTakeThePermitsOfARequest(t *testing.T) {
	if backend.MaxPermits > wire.UnpackMost {
		t.Errorf("a request has %d permits; a script passes on %d values", backend.MaxPermits, wire.UnpackMost)
	}
}

// The store in memory has no duration of its own that is one of the scripts': a change of the scripts would leave it as
// it is.
func TestMemoryTakesTheDurationsOfTheScripts(t *testing.T) {
	names := map[time.Duration][]string{}
	durations(t, "numbers_gen.go", func(name string, d time.Duration, _ token.Position) {
		names[d] = append(names[d], "wire."+name)
	})
	if names[wire.Reservation] == nil || names[wire.EntryNew] == nil {
		t.Fatalf("the durations of numbers_gen.go are not recognized: %v", names)
	}
	files, err := filepath.Glob("../../backend/memory/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of backend/memory: %v", err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		durations(t, file, func(_ string, d time.Duration, at token.Position) {
			if names := names[d]; names != nil {
				t.Errorf("%s has %v; write one of %s, or with another meaning another value", at, d, strings.Join(names, ", "))
			}
		})
	}
}

// durations calls found for each duration that a file writes as a number and a unit, or as a unit of a second or more.
// Name is that of the constant which has the duration as its value, if it is one.
func durations(t *testing.T, file string, found func(name string, d time.Duration, at token.Position)) {
	t.Helper()
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			name = n.Names[0].Name
		case *ast.BinaryExpr:
			number, is := n.X.(*ast.BasicLit)
			if unit := unitOf(n.Y); is && n.Op == token.MUL && unit != 0 {
				times, err := strconv.ParseInt(number.Value, 0, 64)
				if err != nil {
					t.Errorf("%s: %v", files.Position(n.Pos()), err)
				}
				found(name, time.Duration(times)*unit, files.Position(n.Pos()))
				return false
			}
		case *ast.SelectorExpr:
			if unit := unitOf(n); unit >= time.Second {
				found(name, unit, files.Position(n.Pos()))
			}
		}
		return true
	})
}

// unitOf returns the duration of time.Second and its like, and 0 for another expression.
func unitOf(e ast.Expr) time.Duration {
	s, is := e.(*ast.SelectorExpr)
	if !is {
		return 0
	}
	if of, is := s.X.(*ast.Ident); !is || of.Name != "time" {
		return 0
	}
	return map[string]time.Duration{"Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
		"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[s.Sel.Name]
}
