// Package commands turns the interface redisproto.Commands into a client's
// implementation of it: it loads the interface, checks its structs against the
// scripts' headers, and renders them through the client's profile.
package commands

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/mortise-go/mortise/gen/internal/luascript"
	"github.com/mortise-go/mortise/gen/internal/mistake"
)

const directive = "//mortise:script"

// Interface is the loaded interface, its methods checked against their scripts.
type Interface struct {
	Name    string // Commands
	Package string // its package's name
	Path    string // its package's import path
	Methods []*Method

	ScriptsPackage string // the name of the package that holds the scripts' constants
	ScriptsPath    string
}

// Method is one method and the script that it sends.
type Method struct {
	Name   string
	Script *luascript.Script
	Batch  bool
	Split  bool // its items are independent: it may go out as several scripts

	// The structs that the method takes, "" where it takes none.
	KeysType, ArgsType, ItemType, ReplyType string

	// The fields, in the header's order.
	keys, args, eachKeys, eachArgs []field
}

// field is one key or argument as a field of a struct.
type field struct {
	name string
	typ  string // the header's type; string for a key
}

// Options says what to load.
type Options struct {
	Dir       string // where import paths are resolved; "" is the working folder
	Interface string // import path, a dot, the interface's name
	Scripts   string // import path of the package that has the .lua files and their constants
}

// Load reads the scripts and the interface and checks that they agree. What
// their authors have to correct is a [mistake.List].
func Load(o Options) (*Interface, error) {
	dot := strings.LastIndexByte(o.Interface, '.')
	if dot <= strings.LastIndexByte(o.Interface, '/') {
		return nil, fmt.Errorf("%q does not name an interface; write IMPORT/PATH.NAME", o.Interface)
	}
	path, name := o.Interface[:dot], o.Interface[dot+1:]

	fset := token.NewFileSet()
	pkgs, err := packages.Load(&packages.Config{Mode: loadMode, Dir: o.Dir, Fset: fset}, path)
	if err != nil {
		return nil, err
	}
	if len(pkgs) != 1 {
		return nil, fmt.Errorf("%s is %d packages; name one", path, len(pkgs))
	}
	places, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedFiles, Dir: o.Dir}, o.Scripts)
	if err != nil {
		return nil, err
	}
	if len(places) != 1 || len(places[0].GoFiles) == 0 {
		return nil, fmt.Errorf("there is no package %s; name the one that holds the scripts", o.Scripts)
	}
	scripts, err := luascript.ParseDir(filepath.Dir(places[0].GoFiles[0]))
	if err != nil {
		return nil, err
	}
	in, err := check(fset, pkgs[0], name, scripts)
	if err != nil {
		return nil, err
	}
	in.ScriptsPackage, in.ScriptsPath = places[0].Name, places[0].PkgPath
	return in, nil
}

// loadMode reads the package and what it imports from source, so that nothing
// of it needs to compile but what the interface's methods mention.
const loadMode = packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
	packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo

// check compares an interface with the scripts.
func check(fset *token.FileSet, pkg *packages.Package, name string, scripts []*luascript.Script) (*Interface, error) {
	c := &checker{fset: fset, pkg: pkg, scripts: scripts, used: map[string]bool{},
		embedded: map[*ast.InterfaceType]bool{}}
	if err := c.syntax(); err != nil {
		return nil, err
	}
	spec, list, err := c.find(name)
	if err != nil {
		return nil, err
	}
	in := &Interface{Name: name, Package: pkg.Name, Path: pkg.PkgPath}
	in.Methods = c.methods(list)
	for _, s := range scripts {
		if !c.used[s.Name] {
			c.mistakes.Addf(s.File, s.Line, fmt.Sprintf(`add a method with the directive "%s %s" to %s at %s`,
				directive, s.Name, name, c.at(spec.Pos())),
				"no method sends the script %s", s.Name)
		}
	}
	if err := c.mistakes.Err(); err != nil {
		return nil, errors.Join(err, c.typeErrors())
	}
	return in, nil
}

// checker holds what the check of each method needs.
type checker struct {
	fset     *token.FileSet
	pkg      *packages.Package
	scripts  []*luascript.Script
	used     map[string]bool
	embedded map[*ast.InterfaceType]bool // those that were gone through
	mistakes mistake.List
}

// syntax fails where the package could not be read at all. Type errors are left
// alone: the package may use what is about to be generated.
func (c *checker) syntax() error {
	var errs []error
	for _, e := range c.pkg.Errors {
		if e.Kind == packages.ParseError || e.Kind == packages.ListError && len(c.pkg.Syntax) == 0 {
			errs = append(errs, e)
		}
	}
	return errors.Join(errs...)
}

// typeErrors are the package's own, and are shown beside mistakes that they may
// be the cause of.
func (c *checker) typeErrors() error {
	var errs []error
	for _, e := range c.pkg.Errors {
		if e.Kind == packages.TypeError {
			errs = append(errs, e)
		}
	}
	return errors.Join(errs...)
}

func (c *checker) find(name string) (*ast.TypeSpec, *ast.InterfaceType, error) {
	for _, file := range c.pkg.Syntax {
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, s := range gen.Specs {
				spec := s.(*ast.TypeSpec)
				if list, ok := spec.Type.(*ast.InterfaceType); ok && spec.Name.Name == name {
					return spec, list, nil
				}
			}
		}
	}
	return nil, nil, fmt.Errorf("package %s declares no interface %s", c.pkg.PkgPath, name)
}

// at is a position as errors write it.
func (c *checker) at(pos token.Pos) string {
	p := c.fset.Position(pos)
	return fmt.Sprintf("%s:%d", mistake.Path(p.Filename), p.Line)
}

func (c *checker) bad(pos token.Pos, remedy, what string, args ...any) {
	p := c.fset.Position(pos)
	c.mistakes.Addf(mistake.Path(p.Filename), p.Line, remedy, what, args...)
}

func (c *checker) qualifier(p *types.Package) string { return p.Name() }
