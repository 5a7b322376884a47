package commands

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"golang.org/x/tools/go/ast/astutil"

	"github.com/mortise-go/mortise/gen/internal/constants"
	"github.com/mortise-go/mortise/gen/internal/mistake"
	"github.com/mortise-go/mortise/gen/profiles"
)

// blocks are the blocks that a profile has to define.
var blocks = []string{
	"imports", "receiver", "commands", "call", "batch",
	"string", "ms", "int", "bool",
	"decode-int", "decode-ints", "decode-strings",
}

// Profile is the template of the code for one client.
type Profile struct {
	file string
	tmpl *template.Template
}

// LoadProfile reads a built-in profile, by its name, or a profile from a file.
func LoadProfile(name string) (*Profile, error) {
	file := name
	src, known := profiles.Source(name)
	if !known {
		var err error
		if src, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("profile %s: neither a file nor one of %s", name,
				strings.Join(profiles.Names, ", "))
		}
		file = mistake.Path(name)
	}
	return parseProfile(file, string(src))
}

func parseProfile(file, src string) (*Profile, error) {
	p := &Profile{file: file}
	p.tmpl = template.New(file).Option("missingkey=error").Funcs(template.FuncMap{
		"values": p.values,
		"render": p.block,
		"add":    func(a, b int) int { return a + b },
		"times": func(n int, expr string) string {
			if n == 1 {
				return expr
			}
			return fmt.Sprintf("%d*%s", n, expr)
		},
		"decode": func(reply, expr string) (string, error) { return p.block("decode-"+reply, expr) },
	})
	if _, err := p.tmpl.Parse(src); err != nil {
		return nil, explained(err)
	}
	var mistakes mistake.List
	for _, name := range blocks {
		if p.tmpl.Lookup(name) == nil {
			mistakes.Addf(file, 0, fmt.Sprintf(`add {{define %q}}...{{end}}; docs/reference/generation.md says what it holds`,
				name), "the profile has no block %q", name)
		}
	}
	if err := mistakes.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// explained adds a remedy to an error of package text/template, which names the profile's file and line.
func explained(err error) error {
	return fmt.Errorf("%s; docs/reference/generation.md lists the functions, and what each block sees",
		strings.TrimPrefix(err.Error(), "template: "))
}

// block executes one block, without the blank lines around it.
func (p *Profile) block(name string, data any) (string, error) {
	var b bytes.Buffer
	if err := p.tmpl.ExecuteTemplate(&b, name, data); err != nil {
		return "", err
	}
	return strings.Trim(b.String(), "\n"), nil
}

// values returns values as the client takes them, separated by commas.
func (p *Profile) values(values []Value) (string, error) {
	words := make([]string, len(values))
	for i, v := range values {
		s, err := p.block(v.Type, v.Expr)
		if err != nil {
			return "", err
		}
		words[i] = strings.TrimSpace(s)
	}
	return strings.Join(words, ", "), nil
}

// fill breaks a statement into lines, after commas. The statement has no strings with blanks.
func fill(stmt string) string {
	var b strings.Builder
	line := 0
	for i, part := range strings.Split(strings.Join(strings.Fields(stmt), " "), ", ") {
		switch {
		case i > 0 && line+len(part) > width-len(",  {"):
			b.WriteString(",\n")
			line = 0
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(part)
		line += len(part) + len(", ")
	}
	return b.String()
}

// Uses reports whether any method takes a value of a type (string, ms, int,
// bool), has a reply (reply-int, ...), or is a batch.
func (in *Interface) Uses(what string) bool {
	return slices.ContainsFunc(in.Methods, func(m *Method) bool {
		values := slices.Concat(m.Keys, m.Args, m.EachKeys, m.EachArgs)
		return what == "batch" && m.Batch || what == "reply-"+m.Reply() ||
			slices.ContainsFunc(values, func(v Value) bool { return v.Type == what })
	})
}

// Call is the data of the blocks call and batch: a method, and the constants of its script.
type Call struct {
	*Method
	SHA, Source string
}

// output is the result of a profile's blocks for an interface.
type output struct {
	profile, head    string
	sending, methods string
}

// Render returns the Go file that implements an interface for a client.
func Render(pkg string, in *Interface, p *Profile) ([]byte, error) {
	o, err := execute(pkg, in, p)
	if err != nil {
		return nil, err
	}
	return o.file(o.sending+o.methods, isStandard)
}

// RenderSplit returns the file of [Render] as two files: the block commands, and the methods. Each file imports only
// the packages that it uses, so the name of each package must be known.
func RenderSplit(pkg string, in *Interface, p *Profile) (sending, methods []byte, err error) {
	o, err := execute(pkg, in, p)
	if err != nil {
		return nil, nil, err
	}
	_, whole, err := o.parse(o.sending + o.methods)
	if err != nil {
		return nil, nil, err
	}
	var mistakes mistake.List
	for _, spec := range whole.Imports {
		if spec.Name == nil && !isStandard(spec) && !astutil.UsesImport(whole, importPath(spec)) {
			mistakes.Addf(p.file, 0, fmt.Sprintf("write NAME %s in the block imports, or remove it", spec.Path.Value),
				"the path %s does not tell the package's name, or nothing uses the package", spec.Path.Value)
		}
	}
	if err := mistakes.Err(); err != nil {
		return nil, nil, err
	}
	all := func(*ast.ImportSpec) bool { return true }
	if sending, err = o.file(o.sending, all); err != nil {
		return nil, nil, err
	}
	methods, err = o.file(o.methods, all)
	return sending, methods, err
}

// execute executes a profile's blocks for an interface.
func execute(pkg string, in *Interface, p *Profile) (*output, error) {
	var parts [3]string
	for i, block := range []string{"imports", "receiver", "commands"} {
		var err error
		if parts[i], err = p.block(block, in); err != nil {
			return nil, explained(err)
		}
	}
	var b strings.Builder
	for _, m := range in.Methods {
		block, items, result := "call", "", fmt.Sprintf(") (%s, error)", replies[m.Reply()])
		if m.Batch {
			block, items, result = "batch", " for all items, on a cluster once for each slot", ")"
		}
		script := in.ScriptsPackage + "." + constants.GoName(m.Script.Name)
		body, err := p.block(block, Call{m, script + "SHA", script + "Source"})
		if err != nil {
			return nil, explained(err)
		}
		if !m.Batch && !strings.Contains(body, "\n\t}") {
			body = fill(body)
		}
		start := fmt.Sprintf("func (%s) %s(", strings.TrimSpace(parts[1]), m.Name)
		params := strings.Join(m.signature, ", ")
		if len(start+params+result) > width+len("()") {
			params = "\n" + params + ",\n"
		}
		fmt.Fprintf(&b, "\n// %s sends [%sSource]%s.\n%s%s%s {\n%s\n}\n", m.Name, script, items, start, params, result, body)
	}
	head := fmt.Sprintf("// Code generated by mortise-gen; DO NOT EDIT.\n\npackage %s\n\nimport (\n%s\n)\n\n",
		pkg, parts[0])
	o := &output{p.file, head, parts[2] + "\n", b.String()}
	if pkg == in.Package { // a fake, in the interface's package
		for _, s := range []*string{&o.head, &o.sending, &o.methods} {
			*s = strings.ReplaceAll(*s, in.Package+".", "")
		}
	}
	return o, nil
}

// width is the approximate length of generated lines.
const width = 116

func (o *output) parse(body string) (*token.FileSet, *ast.File, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", o.head+body, parser.ParseComments)
	if err != nil {
		return nil, nil, fmt.Errorf("profile %s: the generated code is not Go: %w", o.profile, err)
	}
	return fset, file, nil
}

// file returns a formatted file, without those imports that body does not use and drop permits to leave out.
func (o *output) file(body string, drop func(*ast.ImportSpec) bool) ([]byte, error) {
	fset, file, err := o.parse(body)
	if err != nil {
		return nil, err
	}
	for _, spec := range slices.Clone(file.Imports) {
		if drop(spec) && !astutil.UsesImport(file, importPath(spec)) {
			name := ""
			if spec.Name != nil {
				name = spec.Name.Name
			}
			astutil.DeleteNamedImport(fset, file, name, importPath(spec))
		}
	}
	var b bytes.Buffer
	err = format.Node(&b, fset, file)
	return b.Bytes(), err
}

// isStandard reports whether spec imports a package of the standard library, without a name: the path then gives the
// package's name. The path of a client library does not, but a profile needs that import in any case.
func isStandard(spec *ast.ImportSpec) bool {
	host, _, _ := strings.Cut(importPath(spec), "/")
	return spec.Name == nil && !strings.Contains(host, ".")
}

func importPath(spec *ast.ImportSpec) string {
	path, _ := strconv.Unquote(spec.Path.Value)
	return path
}
