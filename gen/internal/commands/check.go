package commands

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mortise-go/mortise/gen/internal/constants"
	"github.com/mortise-go/mortise/gen/internal/luascript"
)

const directive = "//mortise:script"

var directiveLine = regexp.MustCompile(`^` + directive + `\s+(\S+)(\s+batch(\s+split)?)?\s*$`)

var (
	// goTypes maps types of a header to types of a method's arguments.
	goTypes = map[string]string{"string": "string", "ms": "time.Duration", "int": "int64", "bool": "bool"}
	// replies maps reply types of a header to a method's result types.
	replies = map[string]string{"int": "int64", "ints": "[]int64", "strings": "[]string"}
)

// methods checks the methods of an interface, and of the interfaces that it embeds.
func (c *checker) methods(iface types.Object) (all []*Method) {
	list := iface.Type().Underlying().(*types.Interface)
	own := slices.SortedFunc(list.ExplicitMethods(), func(a, b *types.Func) int { return cmp.Compare(a.Pos(), b.Pos()) })
	for _, m := range own {
		before := len(c.mistakes)
		if method := c.method(m); len(c.mistakes) == before {
			all = append(all, method)
		}
	}
	for t := range list.EmbeddedTypes() {
		named, ok := types.Unalias(t).(*types.Named)
		if !ok || !types.IsInterface(named) || named.Obj().Pkg() != c.pkg.Types {
			c.bad(iface.Pos(), "list its methods here, each with its directive, or embed an interface that this "+
				"package declares", "the interface embeds what is not an interface of its package")
			continue
		}
		all = append(all, c.methods(named.Obj())...)
	}
	return all
}

// directive returns a method with the data of its //mortise:script NAME [batch [split]]; nil if the line is wrong.
func (c *checker) directive(f *types.Func) *Method {
	var lines []*ast.Comment
	if doc := c.docs[f.Pos()]; doc != nil {
		for _, line := range doc.List {
			if strings.HasPrefix(line.Text, directive) {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) != 1 {
		c.bad(f.Pos(), fmt.Sprintf(`write one line "%s NAME" above it`, directive), "%s has %d directives", f.Name(),
			len(lines))
		return nil
	}
	pos := lines[0].Pos()
	words := directiveLine.FindStringSubmatch(lines[0].Text)
	if words == nil {
		c.bad(pos, fmt.Sprintf(`write "%s NAME" or "%s NAME batch", or "batch split"`, directive, directive),
			"the directive of %s is malformed", f.Name())
		return nil
	}
	s := c.scripts[words[1]]
	if s == nil {
		known := strings.Join(slices.Sorted(maps.Keys(c.scripts)), ", ")
		c.bad(pos, fmt.Sprintf("write %s.lua, or name one of %s", words[1], known), "there is no script %s", words[1])
		return nil
	}
	if c.used[s.Name] {
		c.bad(pos, "let one method send it", "a second method sends the script %s", s.Name)
	}
	c.used[s.Name] = true
	m := &Method{Name: f.Name(), Script: s, Batch: words[2] != "", Split: words[3] != ""}
	switch at := fmt.Sprintf("%s:%d", s.File, s.Keys[0].Line); {
	case m.Batch == s.Batch():
		return m
	case m.Batch:
		c.bad(pos, fmt.Sprintf(`write "%s %s", or declare the keys with "--! key * NAME TYPE"`, directive, s.Name),
			"%s is a batch, but %s declares numbered keys", m.Name, at)
	default:
		c.bad(pos, fmt.Sprintf(`write "%s %s batch"`, directive, s.Name), "%s is no batch, but %s declares key *", m.Name,
			at)
	}
	return nil
}

// method checks one method of the interface: NAME(ctx, keys[, args]) (reply, error), or of a batch
// NAME(ctx, [args,] items, out). The result is complete only without mistakes.
func (c *checker) method(f *types.Func) *Method {
	m := c.directive(f)
	if m == nil {
		return nil
	}
	s, sig := m.Script, f.Signature()
	fixed := luascript.Fixed(s.Args)
	var params []string
	results := fmt.Sprintf("(%s, error)", replies[s.Reply])
	if !m.Batch {
		params = append(params, "k "+m.Name+"Keys")
	}
	if len(fixed) > 0 {
		params = append(params, "a "+m.Name+"Args")
	}
	if m.Batch {
		params, results = append(params, "items []"+m.Name+"Item", "out []"+m.Name+"Reply"), "()"
	}
	structs := c.structs(sig, params)
	if structs == nil {
		want := fmt.Sprintf("%s(ctx context.Context, %s) %s", m.Name, strings.Join(params, ", "), results)
		c.bad(f.Pos(), "write "+strings.TrimSuffix(want, " ()"),
			"%s takes other parameters than %s:%d and the lines below it declare", m.Name, s.File, s.Keys[0].Line)
		return nil
	}
	m.signature = []string{"ctx context.Context"}
	for i, param := range params {
		name, _, _ := strings.Cut(param, " ")
		m.signature = append(m.signature, name+" "+c.str(sig.Params().At(1+i).Type()))
	}
	if got := c.str(sig.Results()); got != results {
		c.bad(f.Pos(), "return "+results, "%s returns %s, but %s:%d replies %s", m.Name, got, s.File, s.ReplyLine, s.Reply)
	}
	if keys := structs["k"]; keys != nil {
		m.Keys = c.fields(m, keys, "k.", keysOf(s))
	}
	if args := structs["a"]; args != nil {
		m.Args = c.fields(m, args, "a.", fixed)
	}
	if items := structs["items"]; items != nil {
		m.ItemType = c.str(items)
		if each := c.fields(m, items, "i.", append(keysOf(s), luascript.Each(s.Args)...)); each != nil {
			m.EachKeys, m.EachArgs = each[:len(s.Keys)], each[len(s.Keys):]
		}
	}
	if out := structs["out"]; out != nil {
		m.ReplyType = c.str(out)
		if c.str(out.Underlying()) != "struct{Value int64; Err error}" {
			c.bad(out.Obj().Pos(), "write struct { Value int64; Err error }",
				"%s is not what %s answers for each item by %s:%d", m.ReplyType, m.Name, s.File, s.ReplyLine)
		}
	}
	return m
}

// structs returns the structs that a method takes, by the names of the parameters after the context; nil if the method
// takes other parameters.
func (c *checker) structs(sig *types.Signature, params []string) map[string]*types.Named {
	if sig.Params().Len() != 1+len(params) || c.str(sig.Params().At(0).Type()) != "context.Context" {
		return nil
	}
	structs := map[string]*types.Named{}
	for i, param := range params {
		name, want, _ := strings.Cut(param, " ")
		t := sig.Params().At(1 + i).Type()
		list, many := t.(*types.Slice)
		if many {
			t = list.Elem()
		}
		named, _ := types.Unalias(t).(*types.Named)
		if named == nil || many != strings.HasPrefix(want, "[]") {
			return nil
		}
		if _, is := named.Underlying().(*types.Struct); !is {
			return nil
		}
		structs[name] = named
	}
	return structs
}

// fields returns the fields of a struct as Go expressions. They must be the fields that the header declares, in its
// order; otherwise it returns nil.
func (c *checker) fields(m *Method, named *types.Named, of string, params []luascript.Param) (values []Value) {
	declared := make([]string, len(params))
	for i, p := range params {
		declared[i] = constants.GoName(p.Name) + " " + goTypes[p.Type]
	}
	want := "struct{" + strings.Join(declared, "; ") + "}"
	if !strings.EqualFold(c.str(named.Underlying()), want) {
		c.bad(named.Obj().Pos(), "write "+want+", or change the header",
			"%s is not what %s:%d and the lines below it declare for %s", c.str(named), m.Script.File, params[0].Line,
			m.Name)
		return nil
	}
	for i, p := range params {
		values = append(values, Value{of + named.Underlying().(*types.Struct).Field(i).Name(), p.Type})
	}
	return values
}

// keysOf returns a script's keys as fields of type string: a call passes the key's name, whatever the key holds.
func keysOf(s *luascript.Script) []luascript.Param {
	keys := slices.Clone(s.Keys)
	for i := range keys {
		keys[i].Type = "string"
	}
	return keys
}
