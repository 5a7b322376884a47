// Package mistake has the errors of the generators: place, fault and remedy.
package mistake

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mistake is a fault in an input file.
type Mistake struct {
	File   string // as Path returns it
	Line   int    // 0 for the file as a whole
	What   string
	Remedy string
}

// Error reads "scripts/acquire.lua:12: what is wrong; what to do".
func (m Mistake) Error() string {
	at := m.File
	if m.Line > 0 {
		at += fmt.Sprintf(":%d", m.Line)
	}
	return at + ": " + m.What + "; " + m.Remedy
}

// List is all mistakes of one run.
type List []Mistake

// Addf appends a mistake. The remedy is not formatted.
func (l *List) Addf(file string, line int, remedy, what string, args ...any) {
	*l = append(*l, Mistake{File: file, Line: line, What: fmt.Sprintf(what, args...), Remedy: remedy})
}

// Err returns the list in file order, without duplicates; nil for an empty list.
func (l List) Err() error {
	if len(l) == 0 {
		return nil
	}
	slices.SortStableFunc(l, func(a, b Mistake) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line)
	})
	return slices.Compact(l)
}

// Error returns one line for each mistake.
func (l List) Error() string {
	lines := make([]string, len(l))
	for i, m := range l {
		lines[i] = m.Error()
	}
	return strings.Join(lines, "\n")
}

// Path returns a file's path from the root of the module that the command runs in, so
// that an error reads the same from each folder of go generate. Files elsewhere keep
// their path.
func Path(file string) string {
	root, err := os.Getwd()
	if err != nil {
		return file
	}
	for ; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return file
		}
	}
	abs, _ := filepath.Abs(file)
	if rel, err := filepath.Rel(root, abs); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return file
}
