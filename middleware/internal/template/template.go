// Package template makes lock names out of a text with placeholders,
// "orders:{id}", and values that clients choose.
package template

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxValue is how many bytes a value may have. A client chooses it, and it becomes a
// key in the store.
const MaxValue = 255

// Template is a text with placeholders. Different values make different names: what could
// be taken for the text between two placeholders is escaped in values.
type Template struct {
	text  []string // before, between and behind the placeholders
	names []string
}

// Parse parses a template. It must have a placeholder, or all requests would share one
// lock; and between two of them there must be a character that values never contain.
func Parse(s string) (Template, error) {
	var t Template
	rest := s
	for {
		before, after, found := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return t, fmt.Errorf("%q: a } without a { before it", s)
		}
		if found && len(t.names) > 0 && !strings.ContainsFunc(before, reserved) {
			return t, fmt.Errorf("%q: between two placeholders there must be a : or a /, or different values could make the same name", s)
		}
		t.text = append(t.text, before)
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed || name == "" || strings.Contains(name, "{") {
			return t, fmt.Errorf("%q: a placeholder is a name in braces, such as {id}", s)
		}
		t.names = append(t.names, name)
		rest = tail
	}
	if len(t.names) == 0 {
		return t, fmt.Errorf("%q has no placeholder such as {id}: all requests would share one lock; if that is meant, use a function that returns the name", s)
	}
	return t, nil
}

// Names are the placeholders, in order.
func (t Template) Names() []string { return t.names }

// Expand puts values in. Its errors are those of value, or a [*ValueError].
func (t Template) Expand(value func(name string) (string, error)) (string, error) {
	var b strings.Builder
	for i, name := range t.names {
		b.WriteString(t.text[i])
		v, err := value(name)
		if err != nil {
			return "", err
		}
		switch {
		case v == "":
			return "", &ValueError{name, "is missing or empty"}
		case len(v) > MaxValue:
			return "", &ValueError{name, fmt.Sprintf("has %d bytes, the limit is %d", len(v), MaxValue)}
		}
		Escape(&b, v)
	}
	b.WriteString(t.text[len(t.names)])
	return b.String(), nil
}

// ValueError tells which value of a request makes no name. Its text may be shown to
// the client: it does not contain the value.
type ValueError struct{ Name, Why string }

func (e *ValueError) Error() string { return e.Name + " " + e.Why }

// Escape writes v with % : / { }, spaces, control characters and what is not UTF-8
// percent-encoded. Braces would choose the lock's slot on a cluster.
func Escape(b *strings.Builder, v string) {
	for i := 0; i < len(v); {
		r, n := utf8.DecodeRuneInString(v[i:])
		if reserved(r) || r == utf8.RuneError && n == 1 {
			for _, c := range []byte(v[i : i+n]) {
				fmt.Fprintf(b, "%%%02X", c)
			}
		} else {
			b.WriteString(v[i : i+n])
		}
		i += n
	}
}

func reserved(r rune) bool {
	switch r {
	case '%', ':', '/', '{', '}', '|':
		return true
	}
	return unicode.IsSpace(r) || unicode.IsControl(r)
}
