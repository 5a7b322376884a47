// Rules prints the matrix of mortise's rules by backend from the output of the
// conformance suites, and fails where it has a hole.
//
//	go test -json -run TestConformance ./backend/memory ./redisgo ./rueidis | rules
//
// A cell is the number of tests that passed. What a backend lacks, as its skipped
// tests say, stands below the matrix, and is no hole. The exit status is 1 if a rule
// has no test on a backend, if one failed, was skipped for another reason or did not
// end, or if a package did not run.
package main

import (
	"bufio"
	"encoding/json"
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

// titles are the rules of docs/guarantees.md, by number less one.
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
	m, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
	if !m.write(os.Stdout) {
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
}

// matrix is what became of the tests.
type matrix struct {
	cells    map[string]*[len(titles)]cell // by backend
	lacks    map[string]map[string]bool    // the capabilities that a backend lacks
	troubles []string
	said     map[string]*strings.Builder // what tests that have not ended printed, by package and test
}

type cell struct{ passed, failed, skipped, running int }

func (c cell) String() string {
	switch {
	case c.failed > 0:
		return fmt.Sprintf("%d FAILED", c.failed)
	case c.skipped > 0:
		return fmt.Sprintf("%d SKIPPED", c.skipped)
	case c.running > 0:
		return fmt.Sprintf("%d UNFINISHED", c.running)
	case c.passed == 0:
		return "NONE"
	}
	return strconv.Itoa(c.passed)
}

func (c cell) ok() bool { return c.passed > 0 && c.failed+c.skipped+c.running == 0 }

// ruleTest finds a rule's test: TestConformance/Rule07_..., or, where a package
// runs the suite several times, TestConformance/variant/Rule07_....
var ruleTest = regexp.MustCompile(`^[^/]+/(?:(.*)/)?Rule(\d\d)_[^/]*$`)

// anyTest finds the variant of any test of the suite, and lacking what a skipped one says.
var (
	anyTest = regexp.MustCompile(`^[^/]+/(?:(.*)/)?[^/]+$`)
	lacking = regexp.MustCompile(`: the backend lacks (.+)`)
)

func read(r io.Reader) (*matrix, error) {
	m := &matrix{cells: make(map[string]*[len(titles)]cell), lacks: make(map[string]map[string]bool),
		said: make(map[string]*strings.Builder)}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d is no output of go test -json: %v", n, err)
		}
		if err := m.add(e); err != nil {
			return nil, err
		}
	}
	return m, lines.Err()
}

func (m *matrix) add(e event) error {
	if e.Action == "build-fail" || e.Test == "" && e.Action == "fail" {
		m.troubles = append(m.troubles, strings.TrimSpace(e.Package+" failed"))
		return nil
	}
	if e.Test == "" && e.Action == "skip" {
		m.troubles = append(m.troubles, e.Package+" has no tests")
		return nil
	}
	key := e.Package + " " + e.Test
	lacks := m.lacking(e, key)
	switch e.Action {
	case "output":
		if m.said[key] == nil {
			m.said[key] = new(strings.Builder)
		}
		m.said[key].WriteString(e.Output)
	case "fail", "skip":
		if lacks {
			break
		}
		trouble := fmt.Sprintf("%s: %s", key, e.Action)
		if said := m.said[key]; said != nil {
			trouble += "\n" + strings.TrimRight(said.String(), "\n")
		}
		m.troubles = append(m.troubles, trouble)
		delete(m.said, key)
	case "pass":
		delete(m.said, key)
	}
	f := ruleTest.FindStringSubmatch(e.Test)
	if f == nil {
		return nil
	}
	rule, err := strconv.Atoi(f[2])
	if err != nil || rule < 1 || rule > len(titles) {
		return fmt.Errorf("%s: there is no rule %s", e.Test, f[2])
	}
	backend := path.Join(path.Base(e.Package), f[1])
	if m.cells[backend] == nil {
		m.cells[backend] = new([len(titles)]cell)
	}
	c := &m.cells[backend][rule-1]
	switch e.Action {
	case "run":
		c.running++
	case "pass":
		c.running--
		c.passed++
	case "fail":
		c.running--
		c.failed++
	case "skip":
		c.running--
		if !lacks {
			c.skipped++
		}
	}
	return nil
}

// lacking reports whether e is the end of a test that was skipped because its backend lacks something, and notes that.
func (m *matrix) lacking(e event, key string) bool {
	if e.Action != "skip" || m.said[key] == nil {
		return false
	}
	things, test := lacking.FindStringSubmatch(m.said[key].String()), anyTest.FindStringSubmatch(e.Test)
	if things == nil || test == nil {
		return false
	}
	delete(m.said, key)
	backend := path.Join(path.Base(e.Package), test[1])
	if m.lacks[backend] == nil {
		m.lacks[backend] = make(map[string]bool)
	}
	m.lacks[backend][things[1]] = true
	return true
}

// write prints the matrix and reports whether it is whole.
func (m *matrix) write(w io.Writer) bool {
	backends := slices.Sorted(maps.Keys(m.cells))
	whole := len(backends) > 0 && len(m.troubles) == 0
	var rows [][]string
	rows = append(rows, append([]string{"rule"}, backends...))
	for i, title := range titles {
		row := []string{fmt.Sprintf("%2d %s", i+1, title)}
		for _, b := range backends {
			c := m.cells[b][i]
			whole = whole && c.ok()
			row = append(row, c.String())
		}
		rows = append(rows, row)
	}
	width := make([]int, len(backends)+1)
	for _, row := range rows {
		for i, s := range row {
			width[i] = max(width[i], len(s))
		}
	}
	for _, row := range rows {
		fmt.Fprintf(w, "%-*s", width[0], row[0])
		for i, s := range row[1:] {
			fmt.Fprintf(w, "  %*s", width[i+1], s)
		}
		fmt.Fprintln(w)
	}
	for _, b := range slices.Sorted(maps.Keys(m.lacks)) {
		fmt.Fprintf(w, "%s lacks %s\n", b, strings.Join(slices.Sorted(maps.Keys(m.lacks[b])), "; "))
	}
	if len(backends) == 0 {
		fmt.Fprintln(w, "no test of a rule ran")
	}
	for _, t := range m.troubles {
		fmt.Fprintln(w, t)
	}
	return whole
}
