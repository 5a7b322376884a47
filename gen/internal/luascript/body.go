package luascript

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// globals are the names that a script may read without declaring them: Redis's, but for _G, by which a script could
// reach redis.call without its being seen.
var globals = strings.Fields(`
	KEYS ARGV redis cjson cmsgpack struct bit string table math os coroutine
	assert collectgarbage error gcinfo getmetatable ipairs load loadstring next pairs pcall
	rawequal rawget rawset select setmetatable tonumber tostring type unpack xpcall
	_VERSION`)

// body walks one script and records its use of KEYS and ARGV.
type body struct {
	*Script
	declared string // what to do about a name that is not declared
	mistakes mistake.List
	scope    *scope
	line     int                // of the current statement
	loop     *ast.NumberForStmt // whose block begins

	used    map[string]bool // KEYS[1] and so on; KEYS[] for an index that is no declared number
	binding map[*ast.IdentExpr]*local
	keyArgs []keyArg // checked after the walk, when all assignments are known
	called  []called // likewise
}

// local is a local variable, and all values that are assigned to it. A nil value is an unknown one, such as a
// parameter's.
type local struct {
	values   []ast.Expr
	elements []ast.Expr         // the values assigned to a table's elements; a nil value if other code may assign any
	seen     bool               // guards against a circle of assignments
	steps    *ast.NumberForStmt // the loop whose variable it is; nil if it is none
}

type scope struct {
	outer *scope
	names map[string]*local
}

// keyArg is an argument of redis.call where Redis expects a key.
type keyArg struct {
	expr    ast.Expr
	command string
	line    int
}

// called is one redis.call or redis.pcall.
type called struct {
	must bool
	line int
	args []ast.Expr
	keys []ast.Expr
}

func checkBody(s *Script, text, declared string) mistake.List {
	b := &body{Script: s, declared: declared, used: map[string]bool{}, binding: map[*ast.IdentExpr]*local{}}
	chunk, err := parse.Parse(strings.NewReader(text), s.File)
	if err != nil {
		line, what := strings.Count(text, "\n")+1, err.Error()
		if perr, ok := errors.AsType[*parse.Error](err); ok {
			what = "the end of the file comes too early"
			if perr.Pos.Line > 0 {
				line, what = perr.Pos.Line, fmt.Sprintf("%s near %q", perr.Message, perr.Token)
			}
		}
		b.bad(line, "correct the Lua syntax", "%s", what)
		return b.mistakes
	}
	if len(chunk) == 0 {
		b.bad(0, "write the body below the header", "the script has no body")
		return b.mistakes
	}
	b.walk(chunk)
	for _, k := range b.keyArgs {
		if !b.isKey(k.expr) {
			b.bad(k.line, "use a KEYS[i], a local assigned from one, a concatenation with one, or string.sub(KEYS[i], n)",
				"the key of redis.call(%s, ...) is not one of KEYS", k.command)
		}
	}
	if len(b.mistakes) == 0 {
		b.calls()
	}
	b.compare("key", "KEYS", s.Keys)
	b.compare("arg", "ARGV", s.Args)
	return b.mistakes
}

// bad adds a mistake. Line 0 stands for the line of the current statement.
func (b *body) bad(line int, remedy, what string, args ...any) {
	if line == 0 {
		line = b.line
	}
	b.mistakes.Addf(b.File, line, remedy, what, args...)
}

// compare reports declared keys or arguments that the body does not use.
func (b *body) compare(kind, table string, params []Param) {
	for i, p := range params {
		index := fmt.Sprintf("%s[%d]", table, i+1)
		switch {
		case p.Each && !b.used[table+"[]"]:
			b.bad(p.Line, fmt.Sprintf("use %s[EXPRESSION] or remove the line", table),
				"%s * %s is declared, but the body does not index %s by an expression", kind, p.Name, table)
		case !p.Each && !b.used[index]:
			b.bad(p.Line, fmt.Sprintf("use %s or remove the line", index),
				"%s %d %s is declared, but the body does not use %s", kind, i+1, p.Name, index)
		}
	}
}

// use records an index of KEYS or ARGV, and reports one that is not declared.
func (b *body) use(table string, index ast.Expr, line int) {
	kind, params := "key", b.Keys
	if table == "ARGV" {
		kind, params = "arg", b.Args
	}
	fixed, each := len(Fixed(params)), len(Each(params)) > 0
	number, ok := index.(*ast.NumberExpr)
	if !ok {
		b.walk(index)
		b.used[table+"[]"] = true
		if !each {
			b.bad(line, fmt.Sprintf(`index it by a number, or declare "--! %s * NAME TYPE"`, kind),
				"%s is used other than by a number, but no %s * is declared", table, kind)
		}
		return
	}
	n, err := strconv.Atoi(number.Value)
	switch {
	case err != nil || n < 1:
		b.bad(line, "count from 1", "%s[%s] never exists", table, number.Value)
	case n > fixed && each:
		b.used[table+"[]"] = true
	case n > fixed:
		b.bad(line, fmt.Sprintf(`add a line "--! %s %d NAME TYPE" to the header`, kind, n),
			"%s[%d] is used but not declared", table, n)
	default:
		b.used[fmt.Sprintf("%s[%d]", table, n)] = true
	}
}

// isKey reports whether an expression is an element of KEYS, or is built from one.
func (b *body) isKey(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.AttrGetExpr:
		return nameOf(e.Object) == "KEYS"
	case *ast.StringConcatOpExpr:
		return b.isKey(e.Lhs) || b.isKey(e.Rhs)
	case *ast.LogicalOpExpr:
		return b.isKey(e.Rhs) && (e.Operator == "and" || b.isKey(e.Lhs))
	case *ast.FuncCallExpr:
		switch nameOf(e.Func) {
		case "string.sub": // the end of a key, which has the hash tag
			return len(e.Args) == 2 && b.isKey(e.Args[0])
		case "unpack", "ipairs":
			return len(e.Args) == 1 && b.isKeys(e.Args[0])
		}
	case *ast.IdentExpr:
		l := b.binding[e]
		return l != nil && (l.seen || b.areKeys(l, l.values))
	}
	return false
}

// isKeys reports whether an expression is KEYS, or a local table with keys as its only elements.
func (b *body) isKeys(e ast.Expr) bool {
	id, ok := e.(*ast.IdentExpr)
	if !ok || b.binding[id] == nil {
		return nameOf(e) == "KEYS"
	}
	l := b.binding[id]
	inside := slices.Clone(l.elements)
	for _, v := range l.values {
		table, ok := v.(*ast.TableExpr)
		if !ok {
			return false
		}
		for _, f := range table.Fields {
			inside = append(inside, f.Value)
		}
	}
	return !l.seen && b.areKeys(l, inside)
}

// areKeys reports whether the values assigned to l, or to its elements, are all keys. No values are none.
func (b *body) areKeys(l *local, assigned []ast.Expr) bool {
	l.seen = true
	defer func() { l.seen = false }()
	return len(assigned) > 0 && !slices.ContainsFunc(assigned, func(e ast.Expr) bool { return !b.isKey(e) })
}

// nameOf returns the name of a variable, or of a field: "unpack", "redis.call"; "" for other expressions.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.IdentExpr:
		return e.Value
	case *ast.AttrGetExpr:
		if key, ok := e.Key.(*ast.StringExpr); ok {
			return nameOf(e.Object) + "." + key.Value
		}
	}
	return ""
}

// call records a redis.call or redis.pcall, and the keys among its arguments.
func (b *body) call(must bool, line int, args []ast.Expr) {
	// A command whose name is not a literal (publish or spublish, from an argument) has its key first.
	command, first, last := "...", 1, 1
	if len(args) > 0 {
		if name, ok := args[0].(*ast.StringExpr); ok {
			command = "'" + name.Value + "'"
			first, last = keyPositions(strings.ToLower(name.Value), len(args)-1)
		}
	}
	switch {
	case first < 0:
		b.bad(line, "use other commands", "the keys of redis.call(%s, ...) cannot be checked", command)
		return
	case first >= len(args):
		b.bad(line, "pass one of KEYS", "redis.call(%s) has no key", command)
		return
	}
	c := called{must: must, line: line, args: args}
	for i := first; i <= min(last, len(args)-1); i++ {
		c.keys = append(c.keys, args[i])
		b.keyArgs = append(b.keyArgs, keyArg{args[i], command, max(args[i].Line(), line)})
	}
	if len(args) > 0 {
		b.called = append(b.called, c)
	}
}

// keyPositions returns the positions of the first and the last key among n arguments, counted from 1; 0 and -1 for a
// command without keys; -1 and 0 for one that has keys elsewhere, too.
func keyPositions(command string, n int) (first, last int) {
	switch command {
	case "time", "ping", "echo", "info", "dbsize", "lastsave", "role", "pubsub", "script", "command",
		"randomkey", "scan", "config", "acl", "wait", "client", "cluster", "latency":
		return 0, -1
	case "zunionstore", "zinterstore", "zdiffstore", "sort", "georadius", "georadiusbymember":
		return -1, 0
	case "del", "unlink", "exists", "touch", "mget", "sinter", "sunion", "sdiff", "sinterstore",
		"sunionstore", "sdiffstore", "pfcount", "pfmerge":
		return 1, n
	case "rename", "renamenx", "copy", "smove", "rpoplpush", "lmove", "zrangestore", "lcs":
		return 1, 2
	case "bitop":
		return 2, max(2, n)
	case "object", "memory":
		return 2, 2
	}
	return 1, 1
}

// block walks statements in a new scope. The scope begins with locals, and with their values as far as known.
func (b *body) block(stmts []ast.Stmt, locals []string, values ...ast.Expr) {
	b.scope = &scope{outer: b.scope, names: map[string]*local{}}
	loop := b.loop
	b.loop = nil
	for i, name := range locals {
		l := b.declare(name)
		l.values, l.steps = valueOf(append(values, nil), i), loop
	}
	for _, s := range stmts {
		b.walk(s)
	}
	b.scope = b.scope.outer
}

func (b *body) lookup(name string) *local {
	for s := b.scope; s != nil; s = s.outer {
		if l := s.names[name]; l != nil {
			return l
		}
	}
	return nil
}

func (b *body) declare(name string) *local {
	if slices.Contains([]string{"KEYS", "ARGV", "redis"}, name) {
		b.bad(0, "choose another name", "a local hides %s", name)
	}
	l := &local{}
	b.scope.names[name] = l
	return l
}

// valueOf returns the value that the i-th variable of an assignment gets from the expressions on the right: none for
// Lua's nil, a nil value if unknown.
func valueOf(exprs []ast.Expr, i int) []ast.Expr {
	if len(exprs) == 0 {
		return nil
	}
	if i >= len(exprs) { // a further result of the last expression
		return []ast.Expr{nil}
	}
	if _, none := exprs[i].(*ast.NilExpr); none {
		return nil
	}
	return slices.Clip(exprs[i : i+1]) // assign appends to it
}

// walk records what a node and its children do.
func (b *body) walk(node any) {
	if s, ok := node.(ast.Stmt); ok && s.Line() > 0 {
		b.line = s.Line()
	}
	switch n := node.(type) {
	case []ast.Stmt:
		b.block(n, nil)
	case []ast.Expr:
		for _, e := range n {
			b.walk(e)
		}
	case *ast.AssignStmt:
		b.walk(n.Rhs)
		for i, left := range n.Lhs {
			b.assign(left, valueOf(n.Rhs, i))
		}
	case *ast.LocalAssignStmt:
		b.walk(n.Exprs)
		for i, name := range n.Names {
			b.declare(name).values = valueOf(n.Exprs, i)
		}
	case *ast.NumberForStmt:
		b.walk([]ast.Expr{n.Init, n.Limit, n.Step})
		b.loop = n
		b.block(n.Stmts, []string{n.Name})
	case *ast.GenericForStmt:
		b.walk(n.Exprs)
		b.block(n.Stmts, n.Names, nil, n.Exprs[0])
	case *ast.FuncDefStmt:
		b.assign(n.Name.Func, []ast.Expr{nil})
		b.walk(n.Func)
	case *ast.FunctionExpr:
		b.block(n.Stmts, n.ParList.Names)
	case *ast.GotoStmt:
		b.bad(n.Line(), "use a loop or an if", "Redis runs Lua 5.1, which has no goto")
	case *ast.LabelStmt:
		b.bad(n.Line(), "remove it", "Redis runs Lua 5.1, which has no labels")
	case *ast.IdentExpr:
		if l := b.ident(n); l != nil { // a table is passed on: other code may change it
			l.elements = append(l.elements, nil)
		}
	case *ast.AttrGetExpr:
		b.index(n)
	case *ast.UnaryLenOpExpr:
		b.object(n.Expr)
	case *ast.FuncCallExpr:
		b.function(n)
	case ast.Expr, ast.Stmt:
		b.below(n)
	}
}

// below walks the children of a node.
func (b *body) below(node any) {
	for _, field := range reflect.ValueOf(node).Elem().Fields() {
		if fields, ok := field.Interface().([]*ast.Field); ok { // the fields of a table
			for _, f := range fields {
				b.walk([]ast.Expr{f.Key, f.Value})
			}
			continue
		}
		b.walk(field.Interface())
	}
}

// assign walks one left side of an assignment.
func (b *body) assign(left ast.Expr, value []ast.Expr) {
	switch left := left.(type) {
	case *ast.IdentExpr:
		if l := b.lookup(left.Value); l != nil {
			l.values = append(l.values, value...)
		} else {
			b.bad(left.Line(), "declare it with local", "%s is a global, and Redis forbids scripts to make any",
				left.Value)
		}
	case *ast.AttrGetExpr:
		table := nameOf(left.Object)
		if l := b.lookup(table); l != nil {
			l.elements = append(l.elements, value...)
		} else if slices.Contains(globals, table) {
			b.bad(left.Line(), "assign to a local", "the script changes %s", table)
			return
		}
		b.object(left.Object)
		b.walk(left.Key)
	}
}

// index walks TABLE[KEY].
func (b *body) index(e *ast.AttrGetExpr) {
	table := nameOf(e.Object)
	_, named := e.Key.(*ast.StringExpr)
	switch name := nameOf(e); {
	case table == "KEYS" || table == "ARGV":
		b.use(table, e.Key, e.Line())
	case name == "redis.call" || name == "redis.pcall":
		b.bad(e.Line(), "call it where it stands", "redis.call is passed on, and its keys cannot be checked")
	case table == "redis" && named:
	default:
		b.object(e.Object)
		b.walk(e.Key)
	}
}

// function walks a call.
func (b *body) function(e *ast.FuncCallExpr) {
	switch nameOf(e.Func) {
	case "redis.call", "redis.pcall":
		b.call(nameOf(e.Func) == "redis.call", e.Line(), e.Args)
		b.walk(e.Args)
	case "unpack", "ipairs":
		for _, table := range e.Args {
			b.object(table)
		}
	default:
		b.below(e)
	}
}

// object walks an expression that is indexed or counted.
func (b *body) object(e ast.Expr) {
	if id, ok := e.(*ast.IdentExpr); ok {
		b.ident(id)
		return
	}
	b.walk(e)
}

// ident returns the local with the name; nil for a global.
func (b *body) ident(e *ast.IdentExpr) *local {
	if l := b.lookup(e.Value); l != nil {
		b.binding[e] = l
		return l
	}
	switch {
	case e.Value == "KEYS" || e.Value == "ARGV":
		b.use(e.Value, nil, e.Line())
	case e.Value == "redis":
		b.bad(e.Line(), "write redis.call where it is called",
			"redis is passed on, and the keys of its calls cannot be checked")
	case !slices.Contains(globals, e.Value):
		b.bad(e.Line(), b.declared, "%s is a global that Redis does not have", e.Value)
	}
	return nil
}
