package house

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var write = flag.Bool("exceptions.write", false, "write exceptions.txt anew; its diff must only take lines away")

const exceptionsFile = "exceptions.txt"

// TestHouse holds the limits of the repository's code. Known violations stand in exceptions.txt, one a line: the
// rule, the place, the measure. It fails for a violation that has no line or is above its line, and for a line
// that is no longer needed.
func TestHouse(t *testing.T) {
	all := loadTree(t)
	for _, f := range persons(all) {
		t.Logf("persons in 1,000 words of comments: %.1f", f.measure)
	}
	var now []finding
	for _, r := range rules {
		now = append(now, r.violations(all)...)
	}
	if *write {
		ok(t, os.WriteFile(exceptionsFile, format(now), 0o644))
		return
	}
	text, err := os.ReadFile(exceptionsFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	known, err := parse(text)
	ok(t, err)
	for _, complaint := range compare(now, known) {
		t.Error(complaint)
	}
}

// compare complains of violations that are not known, or grew, and of known ones that are gone.
func compare(now, known []finding) (complaints []string) {
	excused := make(map[string]float64)
	for _, f := range known {
		excused[f.rule+" "+f.where] = f.measure
	}
	for _, f := range now {
		key := f.rule + " " + f.where
		most, ok := excused[key]
		delete(excused, key)
		if ok && rounded(f.measure) <= most {
			continue
		}
		r := rules[slices.IndexFunc(rules, func(r rule) bool { return r.name == f.rule })]
		complaints = append(complaints, fmt.Sprintf("%s: %s is %v, at most %v; %s",
			f.rule, f.where, rounded(f.measure), max(r.limit, most), r.remedy))
	}
	for key := range excused {
		complaints = append(complaints, fmt.Sprintf("%s: no longer a violation; delete its line in %s", key, exceptionsFile))
	}
	slices.Sort(complaints)
	return complaints
}

// rounded has one decimal, upwards, as in exceptions.txt.
func rounded(m float64) float64 { return math.Ceil(m*10) / 10 }

func format(found []finding) []byte {
	slices.SortFunc(found, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.where, b.where))
	})
	var b bytes.Buffer
	for _, f := range found {
		fmt.Fprintf(&b, "%s %s %v\n", f.rule, f.where, rounded(f.measure))
	}
	return b.Bytes()
}

func parse(text []byte) (found []finding, err error) {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		line := strings.Fields(s.Text())
		if len(line) != 3 {
			return nil, fmt.Errorf("%s: %q is not a rule, a place and a measure", exceptionsFile, s.Text())
		}
		m, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", exceptionsFile, s.Text(), err)
		}
		found = append(found, finding{line[0], line[1], m})
	}
	return found, nil
}
