package tools

import (
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// knownExports are the exported declarations that may name an internal package: none.
const knownExports = ""

// A user cannot open an internal type in the documentation, nor an unexported type that a struct embeds.
func TestExportedDeclarationsNameNoInternalPackage(t *testing.T) {
	found := make(map[string]bool)
	for _, f := range goFiles(t) {
		if !f.test() && !f.within("test", "examples") && f.syntax.Name.Name != "main" && !internal(f.path) {
			for _, name := range hidden(f.syntax) {
				found[f.syntax.Name.Name+"."+name] = true
			}
		}
	}
	onlyKnown(t, found, knownExports, "this exported declaration names an internal package, or embeds an unexported type")
}

func TestHiddenNamesAreFound(t *testing.T) {
	for declaration, want := range map[string]string{
		"func F(a internal.T) {}":                      "F",
		"func F() (b []*internal.T) { return nil }":    "F",
		"func (v *V[A]) F(func(internal.T)) {}":        "V.F",
		"func (v *v) F(internal.T) {}":                 "",
		"func f(internal.T) {}":                        "",
		"func F() { internal.F() }":                    "",
		"type T = internal.T":                          "T",
		"type T struct { F, g internal.T }":            "T",
		"type T struct { f internal.T }":               "",
		"type T struct { *embedded; F int }":           "T",
		"type T struct { embedded[int]; F int }":       "T",
		"type T struct { Embedded; f int }":            "",
		"type T interface { F(a internal.T) }":         "T",
		"var V = internal.V":                           "V",
		"var V, v internal.T":                          "V",
		"var v = internal.V":                           "",
		"const ( A = iota; B = internal.B )":           "B",
		"var V = func() error { return internal.Err }": "",
		"var V = renamed.V":                            "V",
		"var V = other.V":                              "",
	} {
		f := parse(t, "package p\nimport \""+module+"/internal\"\nimport renamed \""+module+
			"/internal/some\"\nimport \"another.module/internal/other\"\n"+declaration)
		if got := strings.Join(hidden(f), " "); got != want {
			t.Errorf("%s: %q, want %q", declaration, got, want)
		}
	}
}

func internal(p string) bool { return strings.Contains("/"+p+"/", "/internal/") }

// hidden lists the exported declarations of f that name, outside of functions' bodies, something of an internal package
// of this project, or embed an unexported type.
func hidden(f *ast.File) (names []string) {
	var imported []string
	for _, s := range f.Imports {
		if p := strings.Trim(s.Path.Value, `"`); internal(p) && strings.HasPrefix(p, module) {
			imported = append(imported, path.Base(p))
			if s.Name != nil {
				imported = append(imported, s.Name.Name)
			}
		}
	}
	judge := func(name string, declaration ast.Node) {
		if !ast.IsExported(name) || !ast.IsExported(name[strings.Index(name, ".")+1:]) {
			return
		}
		ast.Inspect(declaration, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				return false
			case *ast.StructType:
				n.Fields.List = slices.DeleteFunc(n.Fields.List, func(x *ast.Field) bool {
					return x.Names != nil && !slices.ContainsFunc(x.Names, (*ast.Ident).IsExported)
				})
				for _, x := range n.Fields.List {
					if x.Names == nil && !ast.IsExported(embedded(x.Type)) {
						names = append(names, name)
					}
				}
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && slices.Contains(imported, id.Name) {
					names = append(names, name)
				}
			}
			return true
		})
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if name := d.Name.Name; d.Recv == nil {
				judge(name, d.Type)
			} else {
				judge(embedded(d.Recv.List[0].Type)+"."+name, d.Type)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					judge(s.Name.Name, s)
				case *ast.ValueSpec:
					judge(s.Names[0].Name, s)
				}
			}
		}
	}
	return slices.Compact(names)
}

// embedded is the name of a type that a struct embeds, or of a method's receiver.
func embedded(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.SelectorExpr:
			return x.Sel.Name
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}
