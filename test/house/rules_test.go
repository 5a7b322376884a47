package house

import (
	"cmp"
	"go/ast"
	"iter"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/uudashr/gocognit"
)

// finding is what a rule measured somewhere.
type finding struct {
	rule, where string
	measure     float64
}

// rule measures the tree; more than limit is a violation.
type rule struct {
	name  string
	limit float64
	// remedy ends the error message.
	remedy  string
	measure func(tree) []finding
}

var rules = []rule{
	{"fields", 15, "split the struct", perFile(fields)},
	{"methods", 25, "split the type", perFile(methods)},
	{"cognitive", 30, "split the function", cognitive},
	{"params", 5, "give the helper a struct, or make it a method", perFile(params)},
	{"columns", 0, "break the lines over 120 columns", columns},
	{"docs", 0, "write a doc comment", docs},
	{"hidden", 0, "export the type, or return an interface", hidden},
	{"persons", 1, "make a thing with a name the subject", persons},
	{"pointers", 35, "repeat the noun instead of it, that, which, one, those", pointers},
	{"root", 2200, "move code below internal/", rootLines},
	{"generated", 600, "generate two files, as -sending of mortise-gen commands does", generatedLines},
	{"packages", 0, "add the package to arrows, or delete its line there", unlisted},
	{"arrows", 0, "turn the import around, or add it to arrows", forbidden},
}

func perFile(measure func(*file) []finding) func(tree) []finding {
	return func(t tree) (all []finding) {
		for _, f := range t.files {
			all = append(all, measure(f)...)
		}
		return all
	}
}

// fields counts the fields of each struct type that has a name and is written by hand; an embedded field is one.
func fields(f *file) (found []finding) {
	for spec := range types(f) {
		if s, ok := spec.Type.(*ast.StructType); ok {
			found = append(found, finding{"fields", f.place() + "." + spec.Name.Name, float64(s.Fields.NumFields())})
		}
	}
	return found
}

// methods counts the methods that a type declares in a file written by hand; sum adds the files up. Of an
// interface it counts those that the interface lists itself, not those of embedded interfaces.
func methods(f *file) (found []finding) {
	for _, fn := range functions(f) {
		if fn.Recv != nil && !f.generated {
			found = append(found, finding{"methods", f.place() + "." + receiver(fn), 1})
		}
	}
	for spec := range types(f) {
		if i, ok := spec.Type.(*ast.InterfaceType); ok {
			for _, m := range i.Methods.List {
				found = append(found, finding{"methods", f.place() + "." + spec.Name.Name, float64(len(m.Names))})
			}
		}
	}
	return found
}

// types are the declarations of types in f, also those in functions; none if f is generated.
func types(f *file) iter.Seq[*ast.TypeSpec] {
	return func(yield func(*ast.TypeSpec) bool) {
		if f.generated {
			return
		}
		for n := range ast.Preorder(f.syntax) {
			if spec, ok := n.(*ast.TypeSpec); ok && !yield(spec) {
				return
			}
		}
	}
}

func functions(f *file) (all []*ast.FuncDecl) {
	for _, d := range f.syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			all = append(all, fn)
		}
	}
	return all
}

// receiver is the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}

func funcName(f *file, fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return f.place() + "." + fn.Name.Name
	}
	return f.place() + "." + receiver(fn) + "." + fn.Name.Name
}

// cognitive measures each function of the product as gocognit does. A gocognit:ignore directive does not count.
func cognitive(t tree) (found []finding) {
	dirs := make(map[string][]*file)
	for _, f := range t.files {
		if f.product() {
			dirs[f.dir()] = append(dirs[f.dir()], f)
		}
	}
	for _, files := range dirs {
		var syntax []*ast.File
		for _, f := range files {
			syntax = append(syntax, f.syntax)
		}
		recursive := gocognit.RecursiveFuncs(syntax, nil)
		for _, f := range files {
			for _, fn := range functions(f) {
				c := gocognit.ScanComplexityWithRecursion(fn, recursive[fn], false).Complexity
				found = append(found, finding{"cognitive", funcName(f, fn), float64(c)})
			}
		}
	}
	return found
}

// params counts the parameters of each helper: a function or method of the product, written by hand, whose name
// is not exported. A context counts, the receiver does not. Excluded are generated code, test code, examples,
// function literals, and what is exported: its parameters belong to an interface or the API.
func params(f *file) (found []finding) {
	if !f.product() {
		return nil
	}
	for _, fn := range functions(f) {
		if !fn.Name.IsExported() {
			found = append(found, finding{"params", funcName(f, fn), float64(fn.Type.Params.NumFields())})
		}
	}
	return found
}

// othersTools marks code that generators of other projects make: the length of its lines is not ours to choose.
var othersTools = regexp.MustCompile(`^// Code generated by (MockGen|protoc)`)

// columns counts the lines of a file that are longer than 120 characters; a tab is one.
func columns(t tree) (found []finding) {
	for _, p := range slices.Sorted(maps.Keys(t.texts)) {
		if othersTools.Match(t.texts[p]) {
			continue
		}
		n := 0
		for line := range strings.Lines(string(t.texts[p])) {
			if utf8.RuneCountInString(strings.TrimRight(line, "\r\n")) > 120 {
				n++
			}
		}
		found = append(found, finding{"columns", p, float64(n)})
	}
	return found
}

// Methods that explain themselves; golint leaves them out as well.
var selfEvident = []string{"Error", "Read", "ServeHTTP", "String", "Write", "Unwrap", "Len", "Less", "Swap"}

// docs finds packages that users can import, and exported identifiers in them, without a doc comment. It asks for
// what golint asks for: functions, types, methods of exported types, and constants and variables, for which a
// comment of their group will do; not for the fields of a struct nor the methods of an interface.
func docs(t tree) (found []finding) {
	documented := make(map[string]bool)
	for _, f := range t.files {
		if !f.importable() {
			continue
		}
		documented[f.dir()] = documented[f.dir()] || f.syntax.Doc != nil
		for _, name := range undocumented(f.syntax) {
			found = append(found, finding{"docs", f.place() + "." + name, 1})
		}
	}
	for dir, ok := range documented {
		if !ok {
			found = append(found, finding{"docs", dir, 1})
		}
	}
	return found
}

// hidden finds exported functions and methods that return an unexported type of their package, and exported structs
// that embed one: users cannot name the type, and the index of the documentation does not show it. What a returned
// function takes and returns does not count.
func hidden(t tree) (found []finding) {
	unexported := make(map[string]bool)
	for _, f := range t.files {
		for n := range ast.Preorder(f.syntax) {
			if spec, ok := n.(*ast.TypeSpec); ok && !spec.Name.IsExported() {
				unexported[f.place()+"."+spec.Name.Name] = true
			}
		}
	}
	for _, f := range t.files {
		if !f.importable() {
			continue
		}
		report := func(name string, e ast.Expr) {
			ast.Inspect(e, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && unexported[f.place()+"."+id.Name] {
					found = append(found, finding{"hidden", f.place() + "." + name + "->" + id.Name, 1})
				}
				_, qualified := n.(*ast.SelectorExpr)
				_, function := n.(*ast.FuncType)
				return !qualified && !function
			})
		}
		for _, fn := range functions(f) {
			name := fn.Name.Name
			if fn.Recv != nil {
				name = receiver(fn) + "." + name
			}
			if ast.IsExported(name) && fn.Name.IsExported() {
				report(name, &ast.StructType{Fields: cmp.Or(fn.Type.Results, new(ast.FieldList))})
			}
		}
		for spec := range types(f) {
			if s, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() {
				for _, x := range s.Fields.List {
					if x.Names == nil {
						report(spec.Name.Name, x.Type)
					}
				}
			}
		}
	}
	return found
}

func undocumented(f *ast.File) (names []string) {
	need := func(name string, comments ...*ast.CommentGroup) {
		if !slices.ContainsFunc(comments, func(c *ast.CommentGroup) bool { return c != nil }) {
			names = append(names, name)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d) + "." + name
			}
			if !d.Name.IsExported() || !ast.IsExported(name) || slices.Contains(selfEvident, d.Name.Name) {
				continue
			}
			need(name, d.Doc)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						of := []*ast.CommentGroup{s.Doc}
						if !d.Lparen.IsValid() {
							of = append(of, d.Doc)
						}
						need(s.Name.Name, of...)
					}
				case *ast.ValueSpec:
					for _, n := range s.Names {
						if n.IsExported() {
							need(n.Name, s.Doc, s.Comment, d.Doc)
						}
					}
				}
			}
		}
	}
	return names
}

// rootLines counts the lines of the root package, tests apart, comments included.
func rootLines(t tree) []finding {
	n := 0
	for p, text := range t.texts {
		if path.Dir(p) == "." && !strings.HasSuffix(p, "_test.go") {
			n += lines(text)
		}
	}
	return []finding{{"root", "mortise", float64(n)}}
}

// generatedLines counts the lines of each generated file of the adapters, comments included.
func generatedLines(t tree) (found []finding) {
	for _, f := range t.files {
		if f.generated && within(f.dir(), "redisgo", "rueidis", "backend/valkey") {
			found = append(found, finding{"generated", f.path, float64(lines(t.texts[f.path]))})
		}
	}
	return found
}

// unlisted finds packages that arrows does not have, and rows of arrows without a package.
func unlisted(t tree) (found []finding) {
	built := make(map[string]bool)
	for _, f := range t.files {
		if layered(f) {
			built[f.dir()] = true
		}
	}
	for dir := range built {
		if _, ok := arrows[dir]; !ok {
			found = append(found, finding{"packages", dir, 1})
		}
	}
	for dir := range arrows {
		if !built[dir] {
			found = append(found, finding{"packages", dir, 1})
		}
	}
	return found
}

// layered reports whether arrows says what f may import: tests and examples may import anything.
func layered(f *file) bool {
	return !strings.HasSuffix(f.path, "_test.go") && !within(f.path, "test", "examples")
}

// forbidden finds imports, of packages of this project, that arrows does not permit.
func forbidden(t tree) (found []finding) {
	for _, f := range t.files {
		permitted, listed := arrows[f.dir()]
		if !layered(f) || !listed {
			continue
		}
		for _, to := range imports(f.syntax) {
			if !slices.Contains(strings.Fields(permitted), to) {
				found = append(found, finding{"arrows", f.dir() + "->" + to, 1})
			}
		}
	}
	return found
}

// imports lists the packages of this project that f imports, relative to mortise's path.
func imports(f *ast.File) (to []string) {
	for _, s := range f.Imports {
		p := strings.Trim(s.Path.Value, "\"`")
		if p == module {
			to = append(to, ".")
		} else if below, ok := strings.CutPrefix(p, module+"/"); ok {
			to = append(to, below)
		}
	}
	return to
}

// sum adds up findings of one rule at one place: the methods of a type stand in several files.
func sum(found []finding) (all []finding) {
	at := make(map[string]int)
	for _, f := range found {
		key := f.rule + " " + f.where
		i, seen := at[key]
		if !seen {
			at[key] = len(all)
			all = append(all, f)
			continue
		}
		if f.rule == "methods" {
			all[i].measure += f.measure
		}
		all[i].measure = max(all[i].measure, f.measure)
	}
	return all
}

// violations are the findings of r that are over its limit.
func (r rule) violations(t tree) []finding {
	return slices.DeleteFunc(sum(r.measure(t)), func(f finding) bool { return f.measure <= r.limit })
}
