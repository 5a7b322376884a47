package commands

import (
	"bytes"
	"fmt"
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

// blocks are what a profile has to define.
var blocks = []string{
	"imports", "receiver", "commands", "call", "batch",
	"string", "ms", "int", "bool",
	"decode-int", "decode-ints", "decode-strings",
}

// Profile is one client's way of sending scripts.
type Profile struct {
	file string
	tmpl *template.Template
}

// LoadProfile reads a profile: one that is built in, by its name, or a file.
func LoadProfile(name string) (*Profile, error) {
	file := name
	src, known := profiles.Source(name)
	if !known {
		var err error
		if src, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("profile %s: it is neither a file nor one of %s", name,
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
			mistakes.Addf(file, 0, fmt.Sprintf(`add {{define %q}}...{{end}}; docs/generation.md says what it holds`,
				name), "the profile has no block %q", name)
		}
	}
	if err := mistakes.Err(); err != nil {
		return nil, err
	}
	return p, nil
}

// explained is an error of package text/template, which names the profile's file and line, with the remedy.
func explained(err error) error {
	return fmt.Errorf("%s; docs/generation.md lists the functions, and what each block sees",
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

// values writes values as the client takes them, separated by commas.
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

// fill breaks a statement of no strings with blanks in them into lines, after commas.
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

// File is what the blocks imports, receiver and commands see.
type File struct {
	*Interface
	types map[string]bool
}

// Uses tells whether any method takes a value of a type (string, ms, int,
// bool), has a reply (reply-int, ...), or is a batch.
func (f File) Uses(what string) bool { return f.types[what] }

// Call is what the blocks call and batch see.
type Call struct {
	Name  string // the method's
	Proto string // the name of the interface's package

	SHA, Source string // the constants of the script

	Keys, Args         []Value // the numbered ones; of a batch, those that all items share
	EachKeys, EachArgs []Value // of a batch, in terms of an item i
	Reply              string  // int, ints or strings
	Zero               string  // the reply's zero value
	Result             string  // the reply's Go type
	ItemType           string  // of a batch
	Split              bool    // a batch whose items may go out in several scripts
	ReplyType          string  // of a batch: struct { Value int64; Err error }
}

// Value is a Go expression and its type in the header.
type Value struct{ Expr, Type string }

// Render writes the Go file that implements an interface for a client.
func Render(pkg string, in *Interface, p *Profile) ([]byte, error) {
	var b bytes.Buffer
	file := File{in, uses(in)}
	imports, err := p.block("imports", file)
	if err != nil {
		return nil, explained(err)
	}
	receiver, err := p.block("receiver", file)
	if err != nil {
		return nil, explained(err)
	}
	commands, err := p.block("commands", file)
	if err != nil {
		return nil, explained(err)
	}
	fmt.Fprintf(&b, "// Code generated by mortise-gen; DO NOT EDIT.\n\npackage %s\n\nimport (\n%s\n)\n\n", pkg, imports)
	fmt.Fprintf(&b, "%s\n", commands)
	for _, m := range in.Methods {
		call := in.call(m)
		name := "call"
		if m.Batch {
			name = "batch"
		}
		body, err := p.block(name, call)
		if err != nil {
			return nil, explained(err)
		}
		if !m.Batch && !strings.Contains(body, "\n\t}") {
			body = fill(body)
		}
		b.WriteString("\n" + in.doc(m))
		start := fmt.Sprintf("func (%s) %s", strings.TrimSpace(receiver), m.Name)
		fmt.Fprintf(&b, "%s%s {\n%s\n}\n", start, m.signature(len(start)), body)
	}
	return tidy(p.file, b.Bytes())
}

func uses(in *Interface) map[string]bool {
	used := map[string]bool{}
	for _, m := range in.Methods {
		for _, f := range slices.Concat(m.keys, m.args, m.eachKeys, m.eachArgs) {
			used[f.typ] = true
		}
		if m.Batch {
			used["batch"] = true
		}
		used["reply-"+m.Script.Reply] = true
	}
	return used
}

func (in *Interface) call(m *Method) Call {
	name := in.ScriptsPackage + "." + constants.GoName(m.Script.Name)
	return Call{
		Name: m.Name, Proto: in.Package,
		SHA: name + "SHA", Source: name + "Source",
		Keys: values("k.", m.keys), Args: values("a.", m.args),
		EachKeys: values("i.", m.eachKeys), EachArgs: values("i.", m.eachArgs),
		Reply: m.Script.Reply, Zero: map[string]string{"int": "0", "ints": "nil", "strings": "nil"}[m.Script.Reply],
		Result:   map[string]string{"int": "int64", "ints": "[]int64", "strings": "[]string"}[m.Script.Reply],
		ItemType: m.ItemType, ReplyType: m.ReplyType, Split: m.Split,
	}
}

func values(of string, fields []field) []Value {
	out := make([]Value, len(fields))
	for i, f := range fields {
		out[i] = Value{of + f.name, f.typ}
	}
	return out
}

// width is where the lines of what is generated end, about.
const width = 116

// doc is the method's comment.
func (in *Interface) doc(m *Method) string {
	items := ""
	if m.Batch {
		items = " for all items, on a cluster once for each slot"
	}
	return fmt.Sprintf("// %s sends [%s.%sSource]%s.\n", m.Name, in.ScriptsPackage, constants.GoName(m.Script.Name),
		items)
}

// signature is what follows the method's name.
func (m *Method) signature(before int) string {
	params := []string{"ctx context.Context"}
	if m.KeysType != "" {
		params = append(params, "k "+m.KeysType)
	}
	if m.ArgsType != "" {
		params = append(params, "a "+m.ArgsType)
	}
	result := ""
	if m.Batch {
		params = append(params, "items []"+m.ItemType, "out []"+m.ReplyType)
	} else {
		result = fmt.Sprintf(" (%s, error)", replies[m.Script.Reply])
	}
	list := strings.Join(params, ", ")
	if before+len(list)+len(result) > width {
		list = "\n" + list + ",\n"
	}
	return "(" + list + ")" + result
}

// tidy drops standard imports that nothing uses, and formats.
func tidy(profile string, src []byte) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", src, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("profile %s: what it generates is not Go: %w", profile, err)
	}
	for _, spec := range slices.Clone(file.Imports) {
		path, _ := strconv.Unquote(spec.Path.Value)
		if host, _, _ := strings.Cut(path, "/"); strings.Contains(host, ".") {
			continue // a profile needs its client, and its path does not tell its name
		}
		if spec.Name == nil && !astutil.UsesImport(file, path) {
			astutil.DeleteImport(fset, file, path)
		}
	}
	var b bytes.Buffer
	if err := format.Node(&b, fset, file); err != nil {
		return nil, err
	}
	return format.Source(b.Bytes())
}
