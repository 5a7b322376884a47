package middleware

import "testing"

// texts are all texts over an alphabet of up to n characters.
func texts(alphabet []string, n int) (all []string) {
	last := []string{""}
	for range n {
		var next []string
		for _, before := range last {
			for _, c := range alphabet {
				next = append(next, before+c)
			}
		}
		all = append(all, next...)
		last = next
	}
	return all
}

// Of every template that is accepted, different values make different names: also where values and
// separators look like what escaping emits.
func TestDifferentValuesMakeDifferentNames(t *testing.T) {
	values := texts([]string{"a", "%", "2", "5"}, 3)
	accepted := 0
	for _, between := range texts([]string{"a", "%", "2", "5", ":", "|", " "}, 2) {
		tmpl, err := ParseTemplate("t:{A}" + between + "{B}")
		if err != nil {
			continue
		}
		accepted++
		names := make(map[string][2]string)
		for _, a := range values {
			for _, b := range values {
				name, err := tmpl.Expand(func(p string) (string, error) {
					if p == "A" {
						return a, nil
					}
					return b, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if before, there := names[name]; there {
					t.Fatalf("t:{A}%s{B}: %q of %q and of %q", between, name, before, [2]string{a, b})
				}
				names[name] = [2]string{a, b}
			}
		}
	}
	if accepted != 36 { // those with a : or a | or a space
		t.Errorf("%d templates were accepted, want 36", accepted)
	}
}
