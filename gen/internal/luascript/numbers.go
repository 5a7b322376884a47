package luascript

import (
	"reflect"
	"slices"

	"github.com/yuin/gopher-lua/ast"

	"github.com/mortise-go/mortise/gen/internal/mistake"
)

// bare are the numbers that need no name, with either sign: they begin, step, halve and double, and are the replies of
// Redis that mean yes, no and none. Nor does a number in an index need a name: it counts places in a table.
var bare = []string{"0", "1", "2"}

// numbers walks a script for its numbers, before the names of constants are replaced.
type numbers struct {
	*constants
	file    string
	line    int // of the current node
	indexes int // how many indexes are around the current node

	unnamed, misused mistake.List
}

// walk records the constants that a node and its children use, and reports bare numbers and misused names.
func (n *numbers) walk(node reflect.Value) {
	switch node.Kind() {
	case reflect.Pointer, reflect.Interface:
		if node.IsNil() {
			return
		}
		if at, ok := node.Interface().(ast.PositionHolder); ok && at.Line() > 0 {
			n.line = at.Line()
		}
		if node.Kind() == reflect.Interface || !n.leaf(node.Interface()) {
			n.walk(node.Elem())
		}
	case reflect.Slice:
		for i := range node.Len() {
			n.walk(node.Index(i))
		}
	case reflect.Struct:
		for field := range node.Type().Fields() {
			if field.IsExported() {
				n.walk(node.FieldByIndex(field.Index))
			}
		}
	}
}

// leaf notes what a node says about numbers and names. It reports whether the node's children are done.
func (n *numbers) leaf(node any) (done bool) {
	switch node := node.(type) {
	case *ast.NumberExpr:
		if n.indexes == 0 && !slices.Contains(bare, node.Value) {
			n.unnamed.Addf(n.file, n.line, `declare it in `+n.constants.file+` with "--! const NAME `+node.Value+
				` UNIT TEXT", and write the name`, "%s has no name", node.Value)
		}
	case *ast.IdentExpr:
		if k := n.byName[node.Value]; k != nil {
			k.used = true
		}
	case *ast.AttrGetExpr:
		n.walk(reflect.ValueOf(&node.Object).Elem())
		n.field(node.Key)
		n.indexes++
		n.walk(reflect.ValueOf(&node.Key).Elem())
		n.indexes--
		return true
	case *ast.Field:
		n.field(node.Key)
	case *ast.AssignStmt:
		for _, left := range node.Lhs {
			n.names(nameOf(left))
		}
	case *ast.LocalAssignStmt:
		n.names(node.Names...)
	case *ast.NumberForStmt:
		n.names(node.Name)
	case *ast.GenericForStmt:
		n.names(node.Names...)
	case *ast.FunctionExpr:
		n.names(node.ParList.Names...)
	}
	return false
}

// field reports a field that has the name of a constant.
func (n *numbers) field(key ast.Expr) {
	if text, ok := key.(*ast.StringExpr); ok {
		n.names(text.Value)
	}
}

// names reports the names of constants among names of what is no number.
func (n *numbers) names(names ...string) {
	for _, name := range names {
		if k := n.byName[name]; k != nil {
			n.misused.Addf(n.file, n.line, "choose another name", "%s is the constant of %s:%d", name, n.constants.file, k.Line)
		}
	}
}
