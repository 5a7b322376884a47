package luascript

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// globals are the names that a Redis script may read without declaring them.
var globals = strings.Fields(`
	KEYS ARGV redis cjson cmsgpack struct bit string table math os coroutine
	assert collectgarbage error gcinfo getmetatable ipairs load loadstring next pairs pcall
	rawequal rawget rawset select setmetatable tonumber tostring type unpack xpcall
	_G _VERSION`)

// body walks one script and notes what it does with KEYS and ARGV.
type body struct {
	*Script
	mistakes mistake.List
	scope    *scope
	loops    int
	line     int // of the statement that is being walked

	keys, args uses
	binding    map[*ast.IdentExpr]*local
	keyArgs    []keyArg // to be judged when every assignment has been seen
}

// uses is how often KEYS or ARGV is used, by number and otherwise.
type uses struct {
	numbered map[int]bool
	whole    bool
}

// local is a declared variable, and everything that is ever assigned to it.
type local struct {
	values   []ast.Expr
	elements []ast.Expr // what is assigned to its elements, if it is a table
	key      bool       // an element of KEYS, by ipairs
	opaque   bool       // a parameter, or a result that is not looked into
	passed   bool       // it was used as a whole: if it is a table, others may change it
	seen     bool       // guards against assignments in a circle
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

func checkBody(s *Script, text string) mistake.List {
	b := &body{Script: s, binding: map[*ast.IdentExpr]*local{}}
	b.keys.numbered, b.args.numbered = map[int]bool{}, map[int]bool{}
	chunk, err := parse.Parse(strings.NewReader(text), s.File)
	if err != nil {
		line, what := strings.Count(text, "\n")+1, err.Error()
		if perr := (*parse.Error)(nil); errors.As(err, &perr) {
			what = "the end of the file comes too early"
			if perr.Pos.Line > 0 {
				line, what = perr.Pos.Line, fmt.Sprintf("%s near %q", perr.Message, perr.Token)
			}
		}
		b.mistakes.Addf(s.File, line, "correct the Lua syntax", "%s", what)
		return b.mistakes
	}
	if len(chunk) == 0 {
		b.mistakes.Addf(s.File, 0, "write the body below the header", "the script has no body")
		return b.mistakes
	}
	b.checkPieces(text)
	b.block(chunk)
	for _, k := range b.keyArgs {
		if !b.isKey(k.expr) {
			b.mistakes.Addf(s.File, k.line, "use a KEYS[i], a local assigned from one, a concatenation with one, "+
				"or string.sub(KEYS[i], n)", "the key of redis.call(%s, ...) is not one of KEYS", k.command)
		}
	}
	b.compare("key", "KEYS", s.Keys, b.keys)
	b.compare("arg", "ARGV", s.Args, b.args)
	return b.mistakes
}

func (b *body) bad(line int, remedy, what string, args ...any) {
	if line <= 0 {
		line = b.line
	}
	b.mistakes.Addf(b.File, line, remedy, what, args...)
}

// checkPieces finds what this parser accepts and Lua 5.1 does not, and which the
// tree no longer shows.
func (b *body) checkPieces(text string) {
	last := piece{kind: mark, text: ";"}
	for _, p := range split(text) {
		switch p.kind {
		case space, newline:
			continue
		case comment, str:
			if strings.HasPrefix(strings.TrimPrefix(p.text, "--"), "[[") &&
				strings.Contains(strings.TrimPrefix(p.text, "--")[2:], "[[") {
				b.bad(p.line, "use [=[ and ]=]", "Lua 5.1 does not nest [[ in [[")
			}
			if p.kind == comment {
				continue
			}
		case mark:
			opened := last.kind == mark && last.text == ";" ||
				last.kind == word && slices.Contains([]string{"then", "do", "else", "repeat"}, last.text)
			if p.text == ";" && opened {
				b.bad(p.line, "remove the semicolon", "Lua 5.1 has no empty statement")
			}
			if p.text == "(" && last.kind == word && last.line < p.line &&
				isName(strings.ToLower(strings.TrimLeft(last.text, "_"))) && !keyword(last.text) {
				b.bad(p.line, "put a call's parenthesis on the line of its function",
					"Lua 5.1 finds a parenthesis at the start of a line ambiguous")
			}
		}
		last = p
	}
}

func keyword(s string) bool {
	return slices.Contains(strings.Fields("and break do else elseif end false for function if in local nil not or "+
		"repeat return then true until while"), s)
}

// compare reports what is used and not declared, or declared and not used.
func (b *body) compare(kind, table string, params []Param, u uses) {
	fixed, each := Fixed(params), Each(params)
	for i, p := range fixed {
		if !u.numbered[i+1] {
			b.bad(p.Line, fmt.Sprintf("use %s[%d] or remove the line", table, i+1),
				"%s %d %s is declared, but the body does not use %s[%d]", kind, i+1, p.Name, table, i+1)
		}
	}
	if len(each) > 0 && !u.whole {
		b.bad(each[0].Line, fmt.Sprintf("use %s[EXPRESSION] or remove the line", table),
			"%s * %s is declared, but the body does not index %s by an expression", kind, each[0].Name, table)
	}
}

// use notes an index of KEYS or ARGV.
func (b *body) use(table string, index ast.Expr, line int) {
	kind, params, u := "key", b.Keys, &b.keys
	if table == "ARGV" {
		kind, params, u = "arg", b.Args, &b.args
	}
	number, ok := index.(*ast.NumberExpr)
	if !ok {
		u.whole = true
		if index != nil {
			b.expr(index)
		}
		if len(Each(params)) == 0 {
			b.bad(line, fmt.Sprintf(`index it by a number, or declare "--! %s * NAME TYPE"`, kind),
				"%s is used other than by a number, but no %s * is declared", table, kind)
		}
		return
	}
	n, err := strconv.Atoi(number.Value)
	switch fixed := len(Fixed(params)); {
	case err != nil || n < 1:
		b.bad(line, "count from 1", "%s[%s] never exists", table, number.Value)
	case n > fixed && len(params) == fixed:
		b.bad(line, fmt.Sprintf(`add a line "--! %s %d NAME TYPE" to the header`, kind, n),
			"%s[%d] is used but not declared", table, n)
	case n > fixed:
		u.whole = true
	default:
		u.numbered[n] = true
	}
}

// isKey tells whether an expression is one of KEYS or is built from one.
func (b *body) isKey(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.AttrGetExpr:
		table, ok := e.Object.(*ast.IdentExpr)
		return ok && table.Value == "KEYS"
	case *ast.StringConcatOpExpr:
		return b.isKey(e.Lhs) || b.isKey(e.Rhs)
	case *ast.FuncCallExpr: // the end of one, which has its hash tag; or several of them
		return isStringSub(e) && len(e.Args) == 2 && b.isKey(e.Args[0]) || b.isKeys(unpacked(e))
	case *ast.LogicalOpExpr:
		return b.isKey(e.Rhs) && (e.Operator == "and" || b.isKey(e.Lhs))
	case *ast.IdentExpr:
		l := b.binding[e]
		switch {
		case l == nil || l.opaque:
			return false
		case l.seen || l.key:
			return true
		}
		l.seen = true
		defer func() { l.seen = false }()
		return len(l.values) > 0 && !slices.ContainsFunc(l.values, func(v ast.Expr) bool { return !b.isKey(v) })
	}
	return false
}

// isKeys tells whether a table is KEYS, or a local one that has nothing but keys in it.
func (b *body) isKeys(table *ast.IdentExpr) bool {
	if table == nil {
		return false
	}
	l := b.binding[table]
	if l == nil {
		return table.Value == "KEYS"
	}
	if l.opaque || l.passed || l.seen {
		return false
	}
	l.seen = true
	defer func() { l.seen = false }()
	inside := slices.Clone(l.elements)
	for _, v := range l.values {
		made, ok := v.(*ast.TableExpr)
		if !ok {
			return false
		}
		for _, f := range made.Fields {
			inside = append(inside, f.Value)
		}
	}
	return len(inside) > 0 && !slices.ContainsFunc(inside, func(v ast.Expr) bool { return !b.isKey(v) })
}

// isRedisCall recognises redis.call and redis.pcall.
func isRedisCall(e ast.Expr) bool {
	name := functionOf(e, "redis")
	return name == "call" || name == "pcall"
}

func isStringSub(e *ast.FuncCallExpr) bool { return functionOf(e.Func, "string") == "sub" }

// unpacked is the table of unpack(TABLE), nil if e is something else.
func unpacked(e *ast.FuncCallExpr) *ast.IdentExpr {
	fn, ok := e.Func.(*ast.IdentExpr)
	if !ok || fn.Value != "unpack" || len(e.Args) != 1 {
		return nil
	}
	table, _ := e.Args[0].(*ast.IdentExpr)
	return table
}

// functionOf is the name of a function of a library, "" if e is none.
func functionOf(e ast.Expr, library string) string {
	fn, ok := e.(*ast.AttrGetExpr)
	if !ok {
		return ""
	}
	if object, ok := fn.Object.(*ast.IdentExpr); !ok || object.Value != library {
		return ""
	}
	if name, ok := fn.Key.(*ast.StringExpr); ok {
		return name.Value
	}
	return ""
}

// call looks at redis.call(command, ...) and redis.pcall.
func (b *body) call(e *ast.FuncCallExpr) {
	if len(e.Args) == 0 {
		b.bad(e.Line(), "name the command", "redis.call has no argument")
		return
	}
	// A command that only an argument names (publish or spublish) has its key first.
	command, args, first, last := "...", e.Args[1:], 0, 0
	if name, ok := e.Args[0].(*ast.StringExpr); ok {
		command = "'" + name.Value + "'"
		first, last = keyPositions(strings.ToLower(name.Value), len(args))
	}
	if first < 0 {
		return
	}
	if first >= len(args) {
		b.bad(e.Line(), "pass one of KEYS", "redis.call(%s) has no key", command)
		return
	}
	for _, arg := range args[first:min(last+1, len(args))] {
		b.keyArgs = append(b.keyArgs, keyArg{arg, command, max(arg.Line(), e.Line())})
	}
}

// keyPositions are the first and the last of n arguments that are keys, -1 for a
// command that takes none.
func keyPositions(command string, n int) (first, last int) {
	switch command {
	case "time", "ping", "echo", "info", "dbsize", "lastsave", "role", "pubsub", "script", "command",
		"randomkey", "scan", "config", "acl", "wait", "client", "cluster", "memory", "latency":
		return -1, -1
	case "del", "unlink", "exists", "touch", "mget", "sinter", "sunion", "sdiff", "sinterstore",
		"sunionstore", "sdiffstore", "pfcount", "pfmerge":
		return 0, n - 1
	case "rename", "renamenx", "copy", "smove", "rpoplpush", "lmove", "zrangestore", "lcs":
		return 0, 1
	case "bitop", "object":
		return 1, max(1, n-1)
	}
	return 0, 0
}

func (b *body) push() { b.scope = &scope{outer: b.scope, names: map[string]*local{}} }
func (b *body) pop()  { b.scope = b.scope.outer }

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

// assign notes that the i-th of the names on the left gets its value from exprs.
func assign(l *local, exprs []ast.Expr, i int) {
	switch {
	case i < len(exprs)-1, i < len(exprs) && !manyValued(exprs[i]):
		if _, isNil := exprs[i].(*ast.NilExpr); !isNil {
			l.values = append(l.values, exprs[i])
		}
	case len(exprs) > 0 && manyValued(exprs[len(exprs)-1]):
		l.opaque = true
	}
}

func manyValued(e ast.Expr) bool {
	switch e.(type) {
	case *ast.FuncCallExpr, *ast.Comma3Expr:
		return true
	}
	return false
}

func (b *body) block(stmts []ast.Stmt) {
	b.push()
	b.stmts(stmts)
	b.pop()
}

func (b *body) stmts(stmts []ast.Stmt) {
	for _, s := range stmts {
		b.stmt(s)
	}
}

func (b *body) loop(stmts func()) {
	b.loops++
	b.push()
	stmts()
	b.pop()
	b.loops--
}

func (b *body) stmt(s ast.Stmt) {
	if s.Line() > 0 {
		b.line = s.Line()
	}
	switch s := s.(type) {
	case *ast.AssignStmt:
		b.exprs(s.Rhs)
		for i, left := range s.Lhs {
			b.assignTo(left, s.Rhs, i)
		}
	case *ast.LocalAssignStmt:
		fn, recursive := (*ast.FunctionExpr)(nil), false
		if len(s.Exprs) == 1 {
			fn, recursive = s.Exprs[0].(*ast.FunctionExpr)
		}
		if recursive { // "local function f" may call itself
			b.declare(s.Names[0]).opaque = true
			b.function(fn)
			return
		}
		b.exprs(s.Exprs)
		for i, name := range s.Names {
			assign(b.declare(name), s.Exprs, i)
		}
	case *ast.FuncCallStmt:
		b.expr(s.Expr)
	case *ast.DoBlockStmt:
		b.block(s.Stmts)
	case *ast.WhileStmt:
		b.expr(s.Condition)
		b.loop(func() { b.stmts(s.Stmts) })
	case *ast.RepeatStmt:
		b.loop(func() {
			b.stmts(s.Stmts)
			b.expr(s.Condition) // sees the locals of the block
		})
	case *ast.IfStmt:
		b.expr(s.Condition)
		b.block(s.Then)
		b.block(s.Else)
	case *ast.NumberForStmt:
		b.exprs([]ast.Expr{s.Init, s.Limit})
		if s.Step != nil {
			b.expr(s.Step)
		}
		b.loop(func() {
			b.declare(s.Name).opaque = true
			b.stmts(s.Stmts)
		})
	case *ast.GenericForStmt:
		b.exprs(s.Exprs)
		b.loop(func() {
			for i, name := range s.Names {
				l := b.declare(name)
				l.key = i == 1 && isIpairsOfKeys(s.Exprs)
				l.opaque = !l.key
			}
			b.stmts(s.Stmts)
		})
	case *ast.FuncDefStmt:
		if s.Name.Func != nil {
			b.assignTo(s.Name.Func, nil, 0)
		} else {
			b.expr(s.Name.Receiver)
		}
		b.function(s.Func)
	case *ast.ReturnStmt:
		b.exprs(s.Exprs)
	case *ast.BreakStmt:
		if b.loops == 0 {
			b.bad(s.Line(), "remove it", "break stands outside a loop")
		}
	case *ast.GotoStmt:
		b.bad(s.Line(), "use a loop or an if", "Redis runs Lua 5.1, which has no goto")
	case *ast.LabelStmt:
		b.bad(s.Line(), "remove it", "Redis runs Lua 5.1, which has no labels")
	default:
		b.bad(s.Line(), "use another statement", "the generator does not know the statement %T", s)
	}
}

func isIpairsOfKeys(exprs []ast.Expr) bool {
	call, ok := exprs[0].(*ast.FuncCallExpr)
	if !ok || len(call.Args) != 1 {
		return false
	}
	fn, isName := call.Func.(*ast.IdentExpr)
	arg, isTable := call.Args[0].(*ast.IdentExpr)
	return isName && isTable && fn.Value == "ipairs" && arg.Value == "KEYS"
}

// assignTo walks one left side of an assignment.
func (b *body) assignTo(left ast.Expr, right []ast.Expr, i int) {
	switch left := left.(type) {
	case *ast.IdentExpr:
		l := b.lookup(left.Value)
		if l == nil {
			b.bad(left.Line(), "declare it with local", "%s is a global, and Redis forbids scripts to make any",
				left.Value)
			return
		}
		if right == nil {
			l.opaque = true
		}
		assign(l, right, i)
	case *ast.AttrGetExpr:
		if table, ok := left.Object.(*ast.IdentExpr); ok {
			l := b.lookup(table.Value)
			switch {
			case l == nil && slices.Contains(globals, table.Value):
				b.bad(left.Line(), "assign to a local", "the script changes %s", table.Value)
				return
			case l != nil && i < len(right):
				l.elements = append(l.elements, right[i])
			case l != nil:
				l.opaque = true
			}
		}
		b.object(left.Object)
		b.expr(left.Key)
	}
}

// object walks what is indexed, or counted.
func (b *body) object(e ast.Expr) {
	if id, ok := e.(*ast.IdentExpr); ok {
		b.ident(id)
		return
	}
	b.expr(e)
}

func (b *body) function(fn *ast.FunctionExpr) {
	loops := b.loops
	b.loops = 0
	b.push()
	for _, name := range fn.ParList.Names {
		b.declare(name).opaque = true
	}
	b.stmts(fn.Stmts)
	b.pop()
	b.loops = loops
}

func (b *body) exprs(exprs []ast.Expr) {
	for _, e := range exprs {
		b.expr(e)
	}
}

func (b *body) expr(e ast.Expr) {
	switch e := e.(type) {
	case *ast.IdentExpr:
		b.ident(e)
		if l := b.binding[e]; l != nil {
			l.passed = true
		}
	case *ast.AttrGetExpr:
		if table, ok := e.Object.(*ast.IdentExpr); ok && (table.Value == "KEYS" || table.Value == "ARGV") {
			b.use(table.Value, e.Key, e.Line())
			return
		} else if _, named := e.Key.(*ast.StringExpr); ok && named && table.Value == "redis" {
			if isRedisCall(e) {
				b.bad(e.Line(), "call it where it stands", "redis.call is passed on, and its keys cannot be checked")
			}
			return
		}
		b.object(e.Object)
		b.expr(e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			if f.Key != nil {
				b.expr(f.Key)
			}
			b.expr(f.Value)
		}
	case *ast.FuncCallExpr:
		switch {
		case isRedisCall(e.Func):
			b.call(e)
		case e.Func != nil:
			b.expr(e.Func)
		default:
			b.expr(e.Receiver)
		}
		if table := unpacked(e); table != nil {
			b.ident(table)
			return
		}
		b.exprs(e.Args)
	case *ast.LogicalOpExpr:
		b.exprs([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.RelationalOpExpr:
		b.exprs([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.StringConcatOpExpr:
		b.exprs([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.ArithmeticOpExpr:
		b.exprs([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.UnaryMinusOpExpr:
		b.expr(e.Expr)
	case *ast.UnaryNotOpExpr:
		b.expr(e.Expr)
	case *ast.UnaryLenOpExpr:
		b.object(e.Expr)
	case *ast.FunctionExpr:
		b.function(e)
	}
}

func (b *body) ident(e *ast.IdentExpr) {
	if l := b.lookup(e.Value); l != nil {
		b.binding[e] = l
		return
	}
	switch {
	case e.Value == "KEYS" || e.Value == "ARGV":
		b.use(e.Value, nil, e.Line())
	case e.Value == "redis":
		b.bad(e.Line(), "write redis.call where it is called",
			"redis is passed on, and the keys of its calls cannot be checked")
	case !slices.Contains(globals, e.Value):
		b.bad(e.Line(), "declare it with local", "%s is a global that Redis does not have", e.Value)
	}
}
