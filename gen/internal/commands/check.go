package commands

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"github.com/mortise-go/mortise/gen/internal/constants"
	"github.com/mortise-go/mortise/gen/internal/luascript"
)

// goTypes says how a method takes each type of a header.
var goTypes = map[string]string{"key": "string", "string": "string", "ms": "time.Duration", "int": "int64",
	"bool": "bool"}

// replies says how a method returns each reply of a header.
var replies = map[string]string{"int": "int64", "ints": "[]int64", "strings": "[]string"}

// methods checks the methods of an interface, and of those that it embeds.
func (c *checker) methods(list *ast.InterfaceType) []*Method {
	var out []*Method
	for _, m := range list.Methods.List {
		if len(m.Names) > 0 {
			if method := c.method(m); method != nil {
				out = append(out, method)
			}
			continue
		}
		var embedded *ast.InterfaceType
		if name, ok := m.Type.(*ast.Ident); ok {
			_, embedded, _ = c.find(name.Name)
		}
		if embedded == nil {
			c.bad(m.Pos(), "list its methods here, each with its directive, or embed an interface that this "+
				"package declares",
				"the interface embeds what is not an interface of its package")
			continue
		}
		if !c.embedded[embedded] { // Go refuses those that embed each other; so does this
			c.embedded[embedded] = true
			out = append(out, c.methods(embedded)...)
		}
	}
	return out
}

// method checks one method of the interface; nil if it cannot be generated.
func (c *checker) method(m *ast.Field) *Method {
	name := m.Names[0]
	script, batch, split, pos := c.directive(m, name)
	if script == nil {
		return nil
	}
	c.used[script.Name] = true
	if batch != script.Batch() {
		if batch {
			c.bad(pos, fmt.Sprintf(`write "%s %s", or declare the keys with "--! key * NAME TYPE"`, directive,
				script.Name),
				"%s is a batch, but %s:%d declares numbered keys", name.Name, script.File, script.Keys[0].Line)
		} else {
			c.bad(pos, fmt.Sprintf(`write "%s %s batch"`, directive, script.Name),
				"%s is no batch, but %s:%d declares key *", name.Name, script.File, script.Keys[0].Line)
		}
		return nil
	}
	sig, ok := c.pkg.TypesInfo.Defs[name].Type().(*types.Signature)
	if !ok {
		return nil
	}
	out := &Method{Name: name.Name, Script: script, Batch: batch, Split: split}
	before := len(c.mistakes)
	if batch {
		c.batch(out, name, sig)
	} else {
		c.single(out, name, sig)
	}
	if len(c.mistakes) > before {
		return nil
	}
	return out
}

// directive reads //mortise:script NAME [batch [split]] above a method.
func (c *checker) directive(m *ast.Field, name *ast.Ident) (script *luascript.Script, batch, split bool,
	pos token.Pos) {
	var lines []*ast.Comment
	if m.Doc != nil {
		for _, line := range m.Doc.List {
			if strings.HasPrefix(line.Text, directive) {
				lines = append(lines, line)
			}
		}
	}
	if len(lines) != 1 {
		c.bad(name.Pos(), fmt.Sprintf(`write one line "%s NAME" above it`, directive), "%s has %d directives",
			name.Name, len(lines))
		return nil, false, false, 0
	}
	pos = lines[0].Pos()
	words := strings.Fields(lines[0].Text)
	if len(words) < 2 || len(words) > 4 || len(words) > 2 && words[2] != "batch" || len(words) > 3 &&
		words[3] != "split" || words[0] != directive {
		c.bad(pos, fmt.Sprintf(`write "%s NAME" or "%s NAME batch", or "batch split"`, directive, directive),
			"the directive of %s is malformed", name.Name)
		return nil, false, false, 0
	}
	var names []string
	for _, s := range c.scripts {
		if s.Name == words[1] {
			if c.used[s.Name] {
				c.bad(pos, "let one method send it", "a second method sends the script %s", s.Name)
			}
			return s, len(words) >= 3, len(words) == 4, pos
		}
		names = append(names, s.Name)
	}
	c.bad(pos, fmt.Sprintf("write %s.lua, or name one of %s", words[1], strings.Join(names, ", ")),
		"there is no script %s", words[1])
	return nil, false, false, 0
}

// single checks NAME(ctx, keys[, args]) (reply, error).
func (c *checker) single(m *Method, name *ast.Ident, sig *types.Signature) {
	s := m.Script
	want := fmt.Sprintf("%s(ctx context.Context, k %sKeys", m.Name, m.Name)
	if len(s.Args) > 0 {
		want += fmt.Sprintf(", a %sArgs", m.Name)
	}
	want += fmt.Sprintf(") (%s, error)", replies[s.Reply])

	structs := []*types.Named{}
	for p := range sig.Params().Variables() {
		structs = append(structs, structOf(p.Type()))
	}
	n := 2
	if len(s.Args) > 0 {
		n = 3
	}
	if !c.takes(sig, n) || structs[1] == nil || structs[n-1] == nil || sig.Variadic() {
		c.bad(name.Pos(), "write "+want, "%s takes other parameters than %s:%d and the lines below it declare",
			m.Name, s.File, s.Keys[0].Line)
		return
	}
	if r := sig.Results(); r.Len() != 2 || c.str(r.At(0).Type()) != replies[s.Reply] ||
		c.str(r.At(1).Type()) != "error" {
		c.bad(name.Pos(), fmt.Sprintf("return (%s, error)", replies[s.Reply]), "%s returns %s, but %s:%d replies %s",
			m.Name, c.str(r), s.File, s.ReplyLine, s.Reply)
	}
	m.KeysType = c.str(structs[1])
	m.keys = c.fields(m, structs[1], keysOf(s.Keys), s)
	if len(s.Args) > 0 {
		m.ArgsType = c.str(structs[2])
		m.args = c.fields(m, structs[2], s.Args, s)
	}
}

// batch checks NAME(ctx, [args,] items, out).
func (c *checker) batch(m *Method, name *ast.Ident, sig *types.Signature) {
	s := m.Script
	fixed := luascript.Fixed(s.Args)
	want := fmt.Sprintf("%s(ctx context.Context, ", m.Name)
	n := 3
	if len(fixed) > 0 {
		want += fmt.Sprintf("a %sArgs, ", m.Name)
		n = 4
	}
	want += fmt.Sprintf("items []%sItem, out []%sReply), without results", m.Name, m.Name)

	var items, out *types.Named
	ok := c.takes(sig, n) && sig.Results().Len() == 0 && !sig.Variadic()
	if ok {
		items, out = sliceOf(sig.Params().At(n-2).Type()), sliceOf(sig.Params().At(n-1).Type())
		ok = items != nil && out != nil
	}
	var args *types.Named
	if ok && len(fixed) > 0 {
		args = structOf(sig.Params().At(1).Type())
		ok = args != nil
	}
	if !ok {
		c.bad(name.Pos(), "write "+want, "%s takes other parameters than the batch that %s:%d declares", m.Name,
			s.File, s.Keys[0].Line)
		return
	}
	if args != nil {
		m.ArgsType = c.str(args)
		m.args = c.fields(m, args, fixed, s)
	}
	m.ItemType = c.str(items)
	m.ReplyType = c.str(out)
	each := c.fields(m, items, append(keysOf(s.Keys), luascript.Each(s.Args)...), s)
	if len(each) >= len(s.Keys) {
		m.eachKeys, m.eachArgs = each[:len(s.Keys)], each[len(s.Keys):]
	}
	if r := out.Underlying().(*types.Struct); r.NumFields() != 2 ||
		r.Field(0).Name() != "Value" || c.str(r.Field(0).Type()) != "int64" ||
		r.Field(1).Name() != "Err" || c.str(r.Field(1).Type()) != "error" {
		c.bad(out.Obj().Pos(), "write struct { Value int64; Err error }",
			"%s is not what %s answers for each item by %s:%d", m.ReplyType, m.Name, s.File, s.ReplyLine)
	}
}

// takes tells whether there are n parameters, the first of them a context.
func (c *checker) takes(sig *types.Signature, n int) bool {
	return sig.Params().Len() == n && c.str(sig.Params().At(0).Type()) == "context.Context"
}

// fields checks that a struct has the declared names, in their order.
func (c *checker) fields(m *Method, named *types.Named, params []luascript.Param, s *luascript.Script) []field {
	st := named.Underlying().(*types.Struct)
	typeName := c.str(named)
	got := map[string]*types.Var{}
	for f := range st.Fields() {
		got[fold(f.Name())] = f
	}
	declared := map[string]bool{}
	complete := true
	for _, p := range params {
		declared[fold(p.Name)] = true
		if got[fold(p.Name)] == nil {
			complete = false
			c.bad(named.Obj().Pos(), fmt.Sprintf("add the field %s %s", constants.GoName(p.Name), goTypes[p.Type]),
				"%s has no field for %s, which %s:%d declares for %s", typeName, p.Name, s.File, p.Line, m.Name)
		}
	}
	for f := range st.Fields() {
		if !declared[fold(f.Name())] {
			complete = false
			c.bad(f.Pos(), fmt.Sprintf("remove it, or declare it in %s", s.File),
				"%s.%s is not in the header that starts at %s:%d, for %s", typeName, f.Name(), s.File, max(s.Line, 1),
				m.Name)
		}
	}
	var out []field
	for i, p := range params {
		f := got[fold(p.Name)]
		if f == nil {
			continue
		}
		if !f.Exported() {
			c.bad(f.Pos(), "write "+constants.GoName(p.Name), "%s.%s is not exported, so that no adapter can read it",
				typeName, f.Name())
		}
		if complete && st.Field(i) != f {
			c.bad(f.Pos(), "put the fields in the header's order",
				"%s.%s is not field %d of its struct, where %s:%d declares %s",
				typeName, f.Name(), i+1, s.File, p.Line, p.Name)
		}
		if have := c.str(f.Type()); have != goTypes[p.Type] {
			remedy := ", or change the header"
			if p.Type == "key" {
				remedy = ""
			}
			c.bad(f.Pos(), "make it "+goTypes[p.Type]+remedy, "%s.%s is %s, but %s:%d declares %s as %s",
				typeName, f.Name(), have, s.File, p.Line, p.Name, p.Type)
		}
		typ := p.Type
		if typ == "key" {
			typ = "string"
		}
		out = append(out, field{f.Name(), typ})
	}
	return out
}

// keysOf are keys as fields: whatever a key holds, its name is all that is passed.
func keysOf(keys []luascript.Param) []luascript.Param {
	out := make([]luascript.Param, len(keys))
	for i, k := range keys {
		k.Type = "key"
		out[i] = k
	}
	return out
}

func (c *checker) str(t types.Type) string { return types.TypeString(t, c.qualifier) }

func structOf(t types.Type) *types.Named {
	named, ok := types.Unalias(t).(*types.Named)
	if !ok {
		return nil
	}
	if _, ok := named.Underlying().(*types.Struct); !ok {
		return nil
	}
	return named
}

func sliceOf(t types.Type) *types.Named {
	s, ok := types.Unalias(t).(*types.Slice)
	if !ok {
		return nil
	}
	return structOf(s.Elem())
}

// fold makes lease_time and LeaseTime equal.
func fold(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }
