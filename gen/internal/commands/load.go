// Package commands turns the interface redisproto.Commands into a client's
// implementation of it: it loads the interface, checks its structs against the
// scripts' headers, and renders them through the client's profile.
package commands

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/mortise-go/mortise/gen/internal/luascript"
	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// Interface is the loaded interface, its methods checked against their scripts.
type Interface struct {
	Name    string // Commands
	Package string // its package's name
	Path    string // its package's import path
	Methods []*Method

	ScriptsPackage string // the name of the package that holds the scripts' constants
	ScriptsPath    string
}

// Method is a method and its script.
type Method struct {
	Name   string
	Script *luascript.Script
	Batch  bool
	Split  bool // the items are independent: a batch may go out as several scripts

	ItemType, ReplyType string   // of a batch
	signature           []string // its parameters

	Keys, Args         []Value // the numbered keys and arguments; of a batch, shared by all items
	EachKeys, EachArgs []Value // of a batch, in terms of an item i
}

// Value is a Go expression and its type in the header; string for a key.
type Value struct{ Expr, Type string }

// Reply returns the type of the reply: int, ints or strings.
func (m *Method) Reply() string { return m.Script.Reply }

// Zero returns the zero value of the reply.
func (m *Method) Zero() string {
	if m.Reply() == "int" {
		return "0"
	}
	return "nil"
}

// Load reads an interface, IMPORT/PATH.NAME, and the scripts of a package, and checks that they agree. The package has
// the .lua files and their constants. Faults in the files are a [mistake.List].
func Load(iface, scripts string) (*Interface, error) {
	dot := strings.LastIndexByte(iface, '.')
	if dot <= strings.LastIndexByte(iface, '/') {
		return nil, fmt.Errorf("%q does not name an interface; write IMPORT/PATH.NAME", iface)
	}
	fset := token.NewFileSet()
	pkgs, err := packages.Load(&packages.Config{Mode: loadMode, Fset: fset, ParseFile: parse}, iface[:dot])
	if err != nil {
		return nil, err
	}
	if len(pkgs) != 1 {
		return nil, fmt.Errorf("%s is %d packages; name one", iface[:dot], len(pkgs))
	}
	places, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedFiles}, scripts)
	if err != nil {
		return nil, err
	}
	if len(places) != 1 || len(places[0].GoFiles) == 0 {
		return nil, fmt.Errorf("there is no package %s; name the one that holds the scripts", scripts)
	}
	all, err := luascript.ParseDir(filepath.Dir(places[0].GoFiles[0]))
	if err != nil {
		return nil, err
	}
	in, err := check(fset, pkgs[0], iface[dot+1:], all)
	if err != nil {
		return nil, err
	}
	in.ScriptsPackage, in.ScriptsPath = places[0].Name, places[0].PkgPath
	return in, nil
}

// loadMode reads the package and its imports from source, so only the types in
// the interface's methods need to compile.
const loadMode = packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
	packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo

// parse drops the function bodies of the standard library and of the module cache, whose directories have a version in
// their names: checking them would take most of the time.
func parse(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
	f, err := parser.ParseFile(fset, name, src, parser.AllErrors|parser.ParseComments|parser.SkipObjectResolution)
	standard := filepath.Join(build.Default.GOROOT, "src") + string(filepath.Separator)
	if f == nil || !strings.HasPrefix(name, standard) && !strings.Contains(name, "@v") {
		return f, err
	}
	for _, d := range f.Decls {
		if fn, is := d.(*ast.FuncDecl); is {
			fn.Body = nil
		}
	}
	return f, err
}

// checker is the state of a check.
type checker struct {
	fset     *token.FileSet
	pkg      *packages.Package
	docs     map[token.Pos]*ast.CommentGroup // the methods' comments
	scripts  map[string]*luascript.Script
	used     map[string]bool
	mistakes mistake.List
}

// check compares an interface with the scripts. The package's own errors are reported only along with mistakes, which
// they may have caused: the package may use code that is not generated yet.
func check(fset *token.FileSet, pkg *packages.Package, name string, scripts []*luascript.Script) (*Interface, error) {
	c := &checker{fset: fset, pkg: pkg, docs: map[token.Pos]*ast.CommentGroup{},
		scripts: map[string]*luascript.Script{}, used: map[string]bool{}}
	var errs []error
	for _, e := range pkg.Errors {
		errs = append(errs, e)
	}
	iface := pkg.Types.Scope().Lookup(name)
	if iface == nil || !types.IsInterface(iface.Type()) {
		return nil, errors.Join(append(errs, fmt.Errorf("package %s declares no interface %s", pkg.PkgPath, name))...)
	}
	for _, file := range pkg.Syntax {
		for n := range ast.Preorder(file) {
			if m, ok := n.(*ast.Field); ok && len(m.Names) == 1 {
				c.docs[m.Names[0].Pos()] = m.Doc
			}
		}
	}
	for _, s := range scripts {
		c.scripts[s.Name] = s
	}
	in := &Interface{Name: name, Package: pkg.Name, Path: pkg.PkgPath, Methods: c.methods(iface)}
	for _, s := range scripts {
		if !c.used[s.Name] {
			c.mistakes.Addf(s.File, s.Line, fmt.Sprintf(`add a method with the directive "%s %s" to %s at %s`,
				directive, s.Name, name, c.at(iface.Pos())), "no method sends the script %s", s.Name)
		}
	}
	if err := c.mistakes.Err(); err != nil {
		return nil, errors.Join(append([]error{err}, errs...)...)
	}
	return in, nil
}

// at returns a position in the form of errors.
func (c *checker) at(pos token.Pos) string {
	p := c.fset.Position(pos)
	return fmt.Sprintf("%s:%d", mistake.Path(p.Filename), p.Line)
}

func (c *checker) bad(pos token.Pos, remedy, what string, args ...any) {
	p := c.fset.Position(pos)
	c.mistakes.Addf(mistake.Path(p.Filename), p.Line, remedy, what, args...)
}

// str returns a type in Go's syntax, with package names.
func (c *checker) str(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string { return p.Name() })
}
