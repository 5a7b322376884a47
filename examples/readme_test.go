package examples

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the code of Go files into the pages that show it")

// goBlock is a block of Go in a page, with the comment before it:
//
//	<!-- code: FILE -->                  the file is the block
//	<!-- code: FILE body of FUNCTION -->  the block is what the function does, an Example's without its Output
//	<!-- code: FILE NAME... -->          the block is these declarations, with their comments
//	<!-- program -->                     the block is a program by itself: TestPrograms runs it
//	<!-- fragment: REASON -->            the block is no Go by itself
var goBlock = regexp.MustCompile("(?m)^(?:<!-- (.+) -->\n)?```go\n((?s:.*?))```\n")

// TestCodeOfPages checks that the Go of each page is that of a file that compiles.
func TestCodeOfPages(t *testing.T) {
	for _, page := range markdown(t, "..") {
		if !strings.HasPrefix(page, "../docs/decisions/") {
			checkCode(t, page)
		}
	}
}

func checkCode(t *testing.T, file string) {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fresh := goBlock.ReplaceAllFunc(page, func(block []byte) []byte {
		m := goBlock.FindSubmatch(block)
		mark, code := string(m[1]), string(m[2])
		from, tied := strings.CutPrefix(mark, "code: ")
		switch {
		case mark == "program" || strings.HasPrefix(mark, "fragment: "):
			return block
		case !tied:
			t.Errorf("%s: no comment before this block says where its code is from:\n%s", file, code)
			return block
		}
		want, err := codeOf(from)
		switch {
		case err != nil:
			t.Errorf("%s: %s: %v", file, mark, err)
		case want == code:
		case *update:
			return fmt.Appendf(nil, "<!-- %s -->\n```go\n%s```\n", mark, want)
		default:
			t.Errorf("%s: %s is\n%s\nand the page says\n%s\n`go test ./examples -update` writes it", file, mark, want, code)
		}
		return block
	})
	if *update && !bytes.Equal(fresh, page) {
		if err := os.WriteFile(file, fresh, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// codeOf reads what a mark names: "FILE", "FILE body of FUNCTION" or "FILE NAME...".
func codeOf(mark string) (string, error) {
	words := strings.Fields(mark)
	path := filepath.Join("..", words[0])
	src, err := os.ReadFile(path)
	if err != nil || len(words) == 1 {
		return string(src), err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		return "", err
	}
	text := func(from, to token.Pos) string {
		return string(src[fset.Position(from).Offset:fset.Position(to).Offset])
	}
	if len(words) == 4 && words[1] == "body" && words[2] == "of" {
		d, ok := declaration(f, words[3]).(*ast.FuncDecl)
		if !ok {
			return "", fmt.Errorf("%s has no function %s", path, words[3])
		}
		body, _, _ := strings.Cut(text(d.Body.Lbrace+2, d.Body.Rbrace), "\t// Output:")
		return dedent(strings.TrimRight(body, "\n") + "\n"), nil
	}
	var parts []string
	for _, name := range words[1:] {
		d := declaration(f, name)
		if d == nil {
			return "", fmt.Errorf("%s declares no %s", path, name)
		}
		from := d.Pos()
		if doc := docOf(d); doc != nil {
			from = doc.Pos()
		}
		parts = append(parts, text(from, d.End())+"\n")
	}
	return strings.Join(parts, "\n"), nil
}

// declaration finds a function, a method (Type.Method), a type, or a group of constants or variables by a name.
func declaration(f *ast.File, name string) ast.Decl {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if functionName(d) == name {
				return d
			}
		case *ast.GenDecl:
			if slices.ContainsFunc(d.Specs, func(s ast.Spec) bool {
				switch s := s.(type) {
				case *ast.TypeSpec:
					return s.Name.Name == name
				case *ast.ValueSpec:
					return slices.ContainsFunc(s.Names, func(n *ast.Ident) bool { return n.Name == name })
				}
				return name == "import"
			}) {
				return d
			}
		}
	}
	return nil
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	return fmt.Sprint(of, ".", d.Name.Name)
}

func docOf(d ast.Decl) *ast.CommentGroup {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Doc
	case *ast.GenDecl:
		return d.Doc
	}
	return nil
}

// program is the first program of a page.
func program(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range goBlock.FindAllStringSubmatch(string(text), -1) {
		if m[1] == "program" {
			return m[2]
		}
	}
	t.Fatalf("%s has no program", page)
	return ""
}

// runProgram runs code as `go run` does, and returns what it prints.
func runProgram(t *testing.T, code string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "run", file).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

func dedent(code string) string {
	lines := strings.SplitAfter(code, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "\t")
	}
	return strings.Join(lines, "")
}

// TestReadmeIsShort holds the README to 250 lines.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("\n")); n > 250 {
		t.Errorf("README.md has %d lines, 250 at most; move something to docs/", n)
	}
}

// figure is a number of three digits or more, or with a decimal point, in a cell of a table.
var figure = regexp.MustCompile(`\d[\d,]*\.?\d*`)

// TestReadmeFigures checks that each figure of the README's comparison stands in docs/reference/performance.md.
func TestReadmeFigures(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	measured, err := os.ReadFile("../docs/reference/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(readme), "<!-- figures: of docs/reference/performance.md -->\n")
	if !ok {
		t.Fatal("README.md has no mark for the figures")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	there, checked := figure.FindAllString(string(measured), -1), 0
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		for _, cell := range cells[2:] {
			for _, f := range figure.FindAllString(cell, -1) {
				if checked++; !slices.Contains(there, strings.ReplaceAll(f, ",", "")) {
					t.Errorf("README.md says %s, in the row %s; performance.md has no such figure", f, strings.TrimSpace(cells[1]))
				}
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d figures found", checked)
	}
}
