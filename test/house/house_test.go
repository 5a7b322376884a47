package house

import (
	"math"
	"testing"
)

// TestHouse holds the limits of the repository's code: it fails for each violation of a rule.
func TestHouse(t *testing.T) {
	all := loadTree(t)
	for _, f := range append(persons(all), pointers(all)...) {
		t.Logf("%s in 1,000 words of %s: %.1f", f.rule, f.where, f.measure)
	}
	for _, r := range rules {
		for _, f := range r.violations(all) {
			t.Errorf("%s: %s is %v, at most %v; %s", r.name, f.where, math.Ceil(f.measure*10)/10, r.limit, r.remedy)
		}
	}
}
