package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Texts of which words are counted: comments of all code written by hand, the comments of package mortise, the
// documentation of the other packages that users can import, texts of errors, and pages. Decision records are history
// and do not count.
const (
	inComments = "comments"
	inMortise  = "mortise's comments"
	inDocs     = "other packages' documentation"
	inErrors   = "errors"
	inPages    = "pages"
)

var (
	word   = regexp.MustCompile(`[A-Za-z][A-Za-z'’-]*`)
	person = regexp.MustCompile(`(?i)^(who|whoever|whom|nobody|somebody|anybody|everybody|someone|anyone|everyone|` +
		`he|him|his)$`)
	pointer = regexp.MustCompile(`(?i)^(it|that|which|one|those)$`)
	// code is in pages what is no prose: blocks, code in a line, targets of links, comments.
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`|\\]\\([^)]*\\)|<!--.*?-->")
)

// persons counts how many of 1,000 words stand for a person without a name.
func persons(t tree) []finding {
	return perThousand(t, "persons", person, inComments, inErrors, inPages)
}

// pointers counts how many of 1,000 words point at a noun instead of repeating it.
func pointers(t tree) []finding {
	return perThousand(t, "pointers", pointer, inMortise, inDocs, inErrors, inPages)
}

func perThousand(t tree, rule string, wanted *regexp.Regexp, places ...string) (found []finding) {
	texts := prose(t)
	for _, place := range places {
		words := word.FindAllString(texts[place], -1)
		of := 0
		for _, w := range words {
			if wanted.MatchString(w) {
				of++
			}
		}
		found = append(found, finding{rule, place, 1000 * float64(of) / float64(max(len(words), 1))})
	}
	return found
}

// prose is the text of each place.
func prose(t tree) map[string]string {
	texts := make(map[string]string)
	for _, f := range t.files {
		if f.generated {
			continue
		}
		for _, c := range f.syntax.Comments {
			texts[inComments] += c.Text()
			if f.dir() == "." && !f.test() {
				texts[inMortise] += c.Text()
			}
		}
		if f.importable() && !f.test() && f.dir() != "." {
			texts[inDocs] += documentation(f.syntax)
		}
		if f.product() {
			texts[inErrors] += errorTexts(f.syntax)
		}
	}
	for _, page := range t.pages {
		texts[inPages] += code.ReplaceAllString(string(page), " ") + "\n"
	}
	return texts
}

// documentation is the text of f's comments that the documentation of its package shows.
func documentation(f *ast.File) string {
	var all strings.Builder
	add := func(comments ...*ast.CommentGroup) {
		for _, c := range comments {
			all.WriteString(c.Text())
		}
	}
	add(f.Doc)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
				add(d.Doc)
			}
		case *ast.GenDecl:
			if slices.ContainsFunc(d.Specs, exported) {
				add(d.Doc)
			}
			for _, spec := range d.Specs {
				if !exported(spec) {
					continue
				}
				ast.Inspect(spec, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.TypeSpec:
						add(n.Doc, n.Comment)
					case *ast.ValueSpec:
						add(n.Doc, n.Comment)
					case *ast.Field:
						if n.Names != nil && !slices.ContainsFunc(n.Names, (*ast.Ident).IsExported) {
							return false
						}
						add(n.Doc, n.Comment)
					}
					return true
				})
			}
		}
	}
	return all.String()
}

// exported reports whether a specification declares an exported name.
func exported(spec ast.Spec) bool {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return s.Name.IsExported()
	case *ast.ValueSpec:
		return slices.ContainsFunc(s.Names, (*ast.Ident).IsExported)
	}
	return false
}

// errorTexts are the strings that make errors: arguments of functions with such names, and remedies.
func errorTexts(f *ast.File) string {
	var all strings.Builder
	literals := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				s, _ := strconv.Unquote(l.Value)
				all.WriteString(s + "\n")
			}
			return true
		})
	}
	for n := range ast.Preorder(f) {
		switch n := n.(type) {
		case *ast.CallExpr:
			name := ""
			switch fun := n.Fun.(type) {
			case *ast.Ident:
				name = fun.Name
			case *ast.SelectorExpr:
				name = fun.Sel.Name
				if of, ok := fun.X.(*ast.Ident); ok && of.Name == "errors" {
					name = "errors." + name
				}
			}
			switch name {
			case "Errorf", "Invalidf", "errors.New", "refuse":
				for _, arg := range n.Args {
					literals(arg)
				}
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && (key.Name == "Remedy" || key.Name == "remedy") {
				literals(n.Value)
			}
		}
	}
	return all.String()
}
