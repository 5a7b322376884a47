package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// begins and ends are the lines of a page around the table.
const (
	begins = "<!-- rules: `make rules` writes this table -->\n"
	ends   = "<!-- end of rules -->\n"
)

var errNoMarks = errors.New("the page has no place for the table: the lines\n" + begins + strings.TrimSpace(ends))

// into returns a page with the table of this matrix.
func (m *matrix) into(page []byte) ([]byte, error) {
	before, rest, found := bytes.Cut(page, []byte(begins))
	_, after, ended := bytes.Cut(rest, []byte(ends))
	if !found || !ended {
		return nil, errNoMarks
	}
	return slices.Concat(before, []byte(begins), m.table(), []byte(ends), after), nil
}

// table has a column for each package, which may run the suite in several variants, and a row for each rule: in how
// many tests the package keeps it. The last row is what its backend lacks.
func (m *matrix) table() []byte {
	variants := make(map[string][]string) // by package
	var packages []string
	for _, b := range m.backends() {
		p, _, _ := strings.Cut(b, "/")
		if variants[p] == nil {
			packages = append(packages, p)
		}
		variants[p] = append(variants[p], b)
	}
	var t bytes.Buffer
	row := func(title string, cell func(variants []string) string) {
		fmt.Fprintf(&t, "| %s |", title)
		for _, p := range packages {
			fmt.Fprintf(&t, " %s |", cell(variants[p]))
		}
		t.WriteByte('\n')
	}
	fmt.Fprintf(&t, "| rule | `%s` |\n|---|%s\n", strings.Join(packages, "` | `"), strings.Repeat("---|", len(packages)))
	for i, title := range titles {
		row(fmt.Sprint(i+1, " ", title), func(variants []string) string {
			n := 0
			for _, v := range variants {
				n += m.tests[outcome{v, i + 1, "pass"}]
			}
			return fmt.Sprint(n)
		})
	}
	row("lacks", func(variants []string) string {
		var things []string
		for _, v := range variants {
			things = append(things, m.lacks[v]...)
		}
		slices.Sort(things)
		return strings.TrimSpace(strings.Join(slices.Compact(things), "; "))
	})
	return t.Bytes()
}
