// Rules prints the matrix of mortise's rules by backend from the output of the
// conformance suites, and fails where it has a hole.
//
//	go test -json -run TestConformance ./backend/memory ./redisgo ./rueidis | rules
//
// A cell is the number of tests that passed. What a backend lacks, as its skipped
// tests say, stands below the matrix, and is no hole. The exit status is 1 if a rule
// has no test on a backend, if one failed, was skipped for another reason or did not
// end, or if a package did not run. With -page a matrix without holes also becomes a table of a page, a column for each
// package.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// titles are the rules of docs/explanation/guarantees.md, by number less one.
var titles = [...]string{
	"exclusion",
	"the holder is told first",
	"watchdog",
	"a dead holder's lock frees itself",
	"nothing renews after a release",
	"only the owner releases",
	"reentrancy",
	"waiting costs nothing",
	"an abandoned Lock leaves nothing",
	"unlock finishes",
	"a retry never counts twice",
	"reconnects are survived",
	"errors say what to do",
	"shutdown is orderly",
	"constant machinery",
}

func main() {
	page := flag.String("page", "", "also write the matrix, if it has no hole, into this `file`")
	flag.Parse()
	m, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
	if !m.write(os.Stdout) {
		os.Exit(1)
	}
	if *page == "" {
		return
	}
	text, err := os.ReadFile(*page)
	if err == nil {
		text, err = m.into(text)
	}
	if err == nil {
		err = os.WriteFile(*page, text, 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "rules: %s: %v\n", *page, err)
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// matrix is what became of the tests.
type matrix struct {
	tests    map[outcome]int     // how many of them
	lacks    map[string][]string // what a backend lacks
	troubles []string
	said     map[string]string // what tests that have not ended printed, by package and test
}

// outcome is what became of a rule's tests on a backend: pass, fail, skip, or lacks; run for those that have not ended.
type outcome struct {
	backend string
	rule    int
	became  string
}

// cell is what the matrix says of a rule on a backend, and whether that is whole.
func (m *matrix) cell(backend string, rule int) (text string, whole bool) {
	for _, hole := range [][2]string{{"fail", "FAILED"}, {"skip", "SKIPPED"}, {"run", "UNFINISHED"}} {
		if n := m.tests[outcome{backend, rule, hole[0]}]; n > 0 {
			return fmt.Sprint(n, " ", hole[1]), false
		}
	}
	if n := m.tests[outcome{backend, rule, "pass"}]; n > 0 {
		return strconv.Itoa(n), true
	}
	return "NONE", false
}

// aTest finds the variant and the rule of a test: TestConformance/Rule07_..., or, where a package runs the suite
// several times, TestConformance/variant/Rule07_.... Lacking finds what a skipped test says that its backend lacks.
var (
	aTest   = regexp.MustCompile(`^[^/]+(?:/(?:(.*)/)?(?:Rule(\d\d)_)?[^/]*)?$`)
	lacking = regexp.MustCompile(`: the backend lacks (.+)`)
)

func read(r io.Reader) (*matrix, error) {
	m := &matrix{tests: map[outcome]int{}, lacks: map[string][]string{}, said: map[string]string{}}
	for events := json.NewDecoder(r); ; {
		var e event
		if err := events.Decode(&e); err == io.EOF {
			return m, nil
		} else if err != nil {
			return nil, fmt.Errorf("byte %d is no output of go test -json: %v", events.InputOffset(), err)
		}
		if err := m.add(e); err != nil {
			return nil, err
		}
	}
}

func (m *matrix) add(e event) error {
	key, became := e.Package+" "+e.Test, e.Action
	switch {
	case e.Action == "build-fail" || e.Action == "fail" && e.Test == "":
		m.troubles = append(m.troubles, strings.TrimSpace(e.Package+" failed"))
		return nil
	case e.Action == "skip" && e.Test == "":
		m.troubles = append(m.troubles, e.Package+" has no tests")
		return nil
	case e.Action == "output":
		m.said[key] += e.Output
		return nil
	case e.Test == "" || !slices.Contains([]string{"run", "pass", "skip", "fail"}, e.Action):
		return nil
	}
	test := aTest.FindStringSubmatch(e.Test)
	backend := path.Join(path.Base(e.Package), test[1])
	if things := lacking.FindStringSubmatch(m.said[key]); things != nil && e.Action == "skip" {
		m.lacks[backend], became = append(m.lacks[backend], things[1]), "lacks"
	}
	if became == "fail" || became == "skip" {
		m.troubles = append(m.troubles, strings.TrimSpace(fmt.Sprintf("%s: %s\n%s", key, e.Action, m.said[key])))
	}
	rule, _ := strconv.Atoi(test[2])
	if test[2] != "" && (rule < 1 || rule > len(titles)) {
		return fmt.Errorf("%s: there is no rule %s", e.Test, test[2])
	}
	m.tests[outcome{backend, rule, became}]++
	if became != "run" {
		m.tests[outcome{backend, rule, "run"}]--
		delete(m.said, key)
	}
	return nil
}

// backends are those that tests of rules ran on.
func (m *matrix) backends() (all []string) {
	for test := range m.tests {
		if test.rule > 0 {
			all = append(all, test.backend)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// write prints the matrix and reports whether it is whole.
func (m *matrix) write(w io.Writer) bool {
	backends := m.backends()
	whole := len(backends) > 0 && len(m.troubles) == 0
	rows := [][]string{append([]string{"rule"}, backends...)}
	for i, title := range titles {
		row := []string{fmt.Sprintf("%2d %s", i+1, title)}
		for _, b := range backends {
			text, ok := m.cell(b, i+1)
			row, whole = append(row, text), whole && ok
		}
		rows = append(rows, row)
	}
	for i := range rows[0] {
		width := 0
		for _, row := range rows {
			width = max(width, len(row[i]))
		}
		if i == 0 {
			width = -width // to the left
		}
		for _, row := range rows {
			row[i] = fmt.Sprintf("%*s", width, row[i])
		}
	}
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "  "))
	}
	for _, b := range slices.Sorted(maps.Keys(m.lacks)) {
		fmt.Fprintf(w, "%s lacks %s\n", b, strings.Join(slices.Compact(slices.Sorted(slices.Values(m.lacks[b]))), "; "))
	}
	if len(backends) == 0 {
		fmt.Fprintln(w, "no test of a rule ran")
	}
	for _, t := range m.troubles {
		fmt.Fprintln(w, t)
	}
	return whole
}
