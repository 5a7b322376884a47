package luascript

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// NameInKey stands for a lock's name in the form of a key.
const NameInKey = "NAME"

// anything stands for the part of a text that is not known before the script runs.
const anything = "*"

// Needs is what a Redis user must be permitted, so that a script of it can run. Each list is sorted.
type Needs struct {
	Must     []string // commands without which the script fails, such as get or pubsub|numsub
	May      []string // commands whose refusal the script outlives
	Keys     []string // patterns of keys: the declared keys, and those of commands in Must
	MayKeys  []string // patterns of keys that only commands in May access
	Channels []string // patterns of channels
}

// Call is one redis.call or redis.pcall.
type Call struct {
	Line     int
	Must     bool     // redis.call: an error ends the script
	Commands []string // one, or those of which the script chooses one
	Keys     []string // patterns
	Channels []string // patterns
}

// containers are the commands whose subcommands are permitted one by one.
var containers = []string{"acl", "client", "cluster", "command", "config", "function", "latency", "memory", "module",
	"object", "pubsub", "script", "slowlog", "xgroup", "xinfo"}

// Needs returns what a user must be permitted. A pattern ends at the lock's name, and a form with braces around the
// name stands for the form without, too.
func (s *Script) Needs() Needs {
	must, may := map[string]bool{}, map[string]bool{}
	keys, mayKeys, channels := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, c := range s.Needed {
		must[c] = true
	}
	for _, c := range s.Calls {
		if c.Must {
			addAll(must, c.Commands)
		}
	}
	for _, k := range s.Keys {
		addAll(keys, patterns(k.Forms))
	}
	for _, c := range s.Calls {
		needed := c.Must || slices.ContainsFunc(c.Commands, func(name string) bool { return slices.Contains(s.Needed, name) })
		if needed {
			addAll(keys, patterns(c.Keys))
		} else {
			addAll(mayKeys, patterns(c.Keys))
		}
		addAll(channels, patterns(c.Channels))
		for _, name := range c.Commands {
			may[name] = !must[name]
		}
	}
	return Needs{Must: sorted(must, nil), May: sorted(may, must), Keys: sorted(keys, nil), MayKeys: sorted(mayKeys, keys),
		Channels: sorted(channels, nil)}
}

func addAll(set map[string]bool, words []string) {
	for _, w := range words {
		set[w] = true
	}
}

// sorted returns the words of a set that are not in another. A word that differs from another word of the two only by
// the lack of braces around the name is left out.
func sorted(set, without map[string]bool) (words []string) {
	for _, w := range slices.Sorted(maps.Keys(set)) {
		braced := strings.Replace(w, NameInKey, "{"+NameInKey, 1)
		if set[w] && !without[w] && (w == NameInKey || braced == w || !set[braced] && !without[braced]) {
			words = append(words, w)
		}
	}
	return words
}

// patterns returns texts up to the lock's name, or to what is not known.
func patterns(texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		if before, _, named := strings.Cut(text, NameInKey); named {
			text = before + NameInKey
		}
		before, _, unknown := strings.Cut(text, anything)
		if all[i] = before; unknown {
			all[i] += anything
		}
	}
	return all
}

// calls notes what the recorded calls do, when all assignments are known.
func (b *body) calls() {
	for _, c := range b.called {
		call := Call{Line: c.line, Must: c.must}
		for _, name := range b.texts(c.args[0]) {
			name = strings.ToLower(name)
			if !slices.Contains(containers, name) {
				call.Commands = append(call.Commands, name)
				continue
			}
			for _, sub := range b.texts(argument(c.args, 1)) {
				call.Commands = append(call.Commands, name+"|"+strings.ToLower(sub))
			}
		}
		if slices.ContainsFunc(call.Commands, func(name string) bool { return strings.Contains(name, anything) }) {
			b.bad(c.line, `write the command, or pass it as an argument of a type such as publish|spublish`,
				"the command of a redis.call is not known")
			continue
		}
		for _, k := range c.keys {
			call.Keys = append(call.Keys, b.texts(k)...)
		}
		for _, name := range call.Commands {
			if name == "publish" || name == "spublish" {
				// A channel is no key for Redis.
				call.Channels, call.Keys = append(call.Channels, call.Keys...), nil
			}
		}
		b.Calls = append(b.Calls, call)
	}
	for _, name := range b.Needed {
		if !slices.ContainsFunc(b.Calls, func(c Call) bool { return !c.Must && slices.Contains(c.Commands, name) }) {
			b.bad(b.NeedsLine, "remove it from the line", "the script needs %s, but sends no such command by redis.pcall", name)
		}
	}
}

func argument(args []ast.Expr, i int) ast.Expr {
	if i < len(args) {
		return args[i]
	}
	return nil
}

// texts returns the texts that an expression may be. Each has anything where it is not known.
func (b *body) texts(e ast.Expr) []string {
	switch e := e.(type) {
	case *ast.StringExpr:
		return []string{e.Value}
	case *ast.NumberExpr:
		return []string{e.Value}
	case *ast.StringConcatOpExpr:
		return product(b.texts(e.Lhs), b.texts(e.Rhs))
	case *ast.LogicalOpExpr:
		if e.Operator == "and" {
			return b.texts(e.Rhs)
		}
		return union(b.texts(e.Lhs), b.texts(e.Rhs))
	case *ast.AttrGetExpr:
		switch nameOf(e.Object) {
		case "KEYS":
			return b.forms(e.Key)
		case "ARGV":
			return b.words(e.Key)
		}
	case *ast.FuncCallExpr:
		return b.result(e)
	case *ast.IdentExpr:
		if l := b.binding[e]; l != nil {
			return b.values(l, l.values)
		}
	}
	return []string{anything}
}

// result returns the texts that a call may return.
func (b *body) result(e *ast.FuncCallExpr) []string {
	switch name := nameOf(e.Func); {
	case name == "string.sub" && len(e.Args) == 2:
		return cutTo(b.texts(e.Args[0]), integerOf(e.Args[1]))
	case (name == "unpack" || name == "ipairs") && len(e.Args) >= 1:
		id, ok := e.Args[0].(*ast.IdentExpr)
		if !ok {
			break
		}
		if id.Value == "KEYS" {
			return b.forms(nil)
		}
		if l := b.binding[id]; l != nil {
			inside := slices.Clone(l.elements)
			for _, v := range l.values {
				if table, ok := v.(*ast.TableExpr); ok {
					for _, f := range table.Fields {
						inside = append(inside, f.Value)
					}
				}
			}
			return b.values(l, inside)
		}
	}
	return []string{anything}
}

// values returns the texts that the values assigned to l may be.
func (b *body) values(l *local, assigned []ast.Expr) (texts []string) {
	if l.seen {
		return nil // a circle of assignments adds nothing
	}
	l.seen = true
	defer func() { l.seen = false }()
	for _, v := range assigned {
		texts = union(texts, b.texts(v))
	}
	return texts
}

// cutTo returns texts from their n-th byte on.
func cutTo(texts []string, n int) []string {
	if n < 1 {
		return []string{anything}
	}
	cut := make([]string, len(texts))
	for i, t := range texts {
		at := strings.Index(t, anything)
		if at < 0 {
			at = len(t)
		}
		if at = min(at, n-1); at < n-1 {
			cut[i] = anything
			continue
		}
		cut[i] = t[at:]
	}
	return cut
}

// integerOf returns an integer, or the sum of two; 0 for another expression.
func integerOf(e ast.Expr) int {
	switch e := e.(type) {
	case *ast.NumberExpr:
		n, _ := strconv.Atoi(e.Value)
		return n
	case *ast.ArithmeticOpExpr:
		if x, y := integerOf(e.Lhs), integerOf(e.Rhs); e.Operator == "+" && x != 0 && y != 0 {
			return x + y
		}
	}
	return 0
}

func product(a, b []string) (all []string) {
	for _, x := range a {
		for _, y := range b {
			all = append(all, x+y)
		}
	}
	return all
}

func union(a, b []string) []string {
	for _, x := range b {
		if !slices.Contains(a, x) {
			a = append(a, x)
		}
	}
	return a
}

// forms returns the forms of KEYS[index]; those of all keys if the index does not tell which.
func (b *body) forms(index ast.Expr) (forms []string) {
	of := func(p Param) []string {
		if len(p.Forms) == 0 {
			return []string{anything}
		}
		return p.Forms
	}
	fixed, each := Fixed(b.Keys), Each(b.Keys)
	if n, ok := index.(*ast.NumberExpr); ok && len(each) == 0 {
		if i, err := strconv.Atoi(n.Value); err == nil && i >= 1 && i <= len(fixed) {
			return of(fixed[i-1])
		}
	}
	if n := len(each); n > 0 && index != nil {
		if r := b.residue(index, n); r >= 0 {
			return of(each[(r+n-1)%n])
		}
	}
	for _, k := range b.Keys {
		forms = union(forms, of(k))
	}
	return forms
}

// words returns the texts that ARGV[index] may be.
func (b *body) words(index ast.Expr) []string {
	if n, ok := index.(*ast.NumberExpr); ok {
		if i, err := strconv.Atoi(n.Value); err == nil && i >= 1 && i <= len(Fixed(b.Args)) && b.Args[i-1].Words != nil {
			return b.Args[i-1].Words
		}
	}
	return []string{anything}
}

// residue returns the rest of an index divided by n; -1 if it is not known.
func (b *body) residue(e ast.Expr, n int) int {
	switch e := e.(type) {
	case *ast.NumberExpr:
		if i, err := strconv.Atoi(e.Value); err == nil && i >= 0 {
			return i % n
		}
	case *ast.IdentExpr:
		if l := b.binding[e]; l != nil && l.steps != nil {
			if step := b.residue(l.steps.Step, n); step == 0 {
				return b.residue(l.steps.Init, n)
			}
		}
	case *ast.ArithmeticOpExpr:
		x, y := b.residue(e.Lhs, n), b.residue(e.Rhs, n)
		switch e.Operator {
		case "*":
			if x == 0 || y == 0 {
				return 0
			}
			if x > 0 && y > 0 {
				return x * y % n
			}
		case "+":
			if x >= 0 && y >= 0 {
				return (x + y) % n
			}
		case "-":
			if x >= 0 && y >= 0 {
				return (x - y + n) % n
			}
		}
	}
	if n == 1 {
		return 0
	}
	return -1
}
