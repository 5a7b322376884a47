package middleware

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxValue bounds the length of a value in bytes. The client chooses the value, and the value becomes part of a key in
// the store.
const MaxValue = 255

// Template is a text with placeholders. Different values make different names: separators are escaped in values.
type Template struct {
	text      []string // before, between and behind the placeholders
	names     []string
	canonical map[string]func(string) (string, error) // by placeholder
}

// ParseTemplate parses a template. A template has at least one placeholder, or all requests would share one lock.
// Before the first placeholder there is a text that ends in a separator, or a client could choose any name. Between two
// placeholders there is a separator. A separator is a character that escaped values never contain, such as : or /. A %
// is no separator, because escaping emits it.
//
// {name:int} declares a decimal integer of 64 bits, as strconv.Atoi reads it, and {name:uuid} a UUID of 36 characters.
// Other values are refused, and those that mean the same make one name: 042 and +42 become 42, a UUID lower case.
func ParseTemplate(s string) (Template, error) {
	var t Template
	rest := s
	for {
		before, after, found := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return t, fmt.Errorf("%q: a } without a { before it", s)
		}
		switch {
		case !found:
		case len(t.names) == 0 && !endsInSeparator(before):
			return t, fmt.Errorf("%q: before the first placeholder there must be a text of your own "+
				"that ends in a : or a /, or a client could choose any name", s)
		case len(t.names) > 0 && !strings.ContainsFunc(before, separator):
			return t, fmt.Errorf("%q: between two placeholders there must be a : or a /, "+
				"or different values could make the same name", s)
		}
		t.text = append(t.text, before)
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		name, form, formed := strings.Cut(name, ":")
		if !closed || name == "" || strings.Contains(name, "{") {
			return t, fmt.Errorf("%q: a placeholder is a name in braces, such as {id} or {id:int}", s)
		}
		t.names = append(t.names, name)
		if formed {
			if err := t.declare(name, form); err != nil {
				return t, fmt.Errorf("%q: %w", s, err)
			}
		}
		rest = tail
	}
	if len(t.names) == 0 {
		return t, fmt.Errorf("%q has no placeholder such as {id}: all requests would share one lock; "+
			"if that is meant, use a function that returns the name", s)
	}
	return t, nil
}

// forms are what a template can declare of a placeholder: the canonical text of a value, or why it has none.
var forms = map[string]func(value string) (string, error){"int": integer, "uuid": uuid}

// declare sets the form of a placeholder.
func (t *Template) declare(name, form string) error {
	f := forms[form]
	if f == nil {
		return fmt.Errorf("{%s:%s}: the forms are int and uuid; for others there is Canonical", name, form)
	}
	return t.SetCanonical(name, f)
}

// SetCanonical sets the function that makes the canonical form of a placeholder's values, where the template declares
// no form of it.
func (t *Template) SetCanonical(name string, f func(value string) (string, error)) error {
	known := false
	for _, n := range t.names {
		known = known || n == name
	}
	switch {
	case f == nil:
		return fmt.Errorf("the function for {%s} must not be nil", name)
	case !known:
		return fmt.Errorf("there is no placeholder {%s}", name)
	case t.canonical[name] != nil:
		return fmt.Errorf("there are two forms of {%s}", name)
	}
	if t.canonical == nil {
		t.canonical = make(map[string]func(string) (string, error))
	}
	t.canonical[name] = f
	return nil
}

// IsCanonical reports whether the placeholder's values have a canonical form.
func (t Template) IsCanonical(name string) bool { return t.canonical[name] != nil }

// Canonical returns the canonical form of a value; the value itself where the placeholder has none. label names the
// value in errors, which are [*ValueError]s.
func (t Template) Canonical(name, label, value string) (string, error) {
	f := t.canonical[name]
	if f == nil || value == "" {
		return value, nil
	}
	if len(value) > MaxValue {
		return "", tooLong(label, value)
	}
	c, err := f(value)
	if err != nil {
		return "", &ValueError{Name: label, Why: "is not in an accepted form", Err: err}
	}
	if c == "" {
		return "", &ValueError{Name: label, Why: "is not in an accepted form", Err: errors.New("its canonical form is empty")}
	}
	return c, nil
}

// integer returns the canonical form of a decimal integer of 64 bits: no plus sign, no leading zeros.
func integer(value string) (string, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return "", err
	}
	return strconv.FormatInt(n, 10), nil
}

// uuid returns the canonical form of a UUID of 36 characters: lower case.
func uuid(value string) (string, error) {
	if len(value) != 36 {
		return "", errors.New("a UUID has 36 characters")
	}
	for i, c := range []byte(value) {
		switch hyphen := i == 8 || i == 13 || i == 18 || i == 23; {
		case hyphen && c == '-':
		case !hyphen && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'):
		default:
			return "", fmt.Errorf("character %d is not that of a UUID", i+1)
		}
	}
	return strings.ToLower(value), nil
}

// Names returns the placeholders, in order.
func (t Template) Names() []string { return t.names }

// Expand replaces the placeholders by escaped values. Its error is an error of value, or a [*ValueError].
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
			return "", &ValueError{Name: name, Why: "is missing or empty"}
		case len(v) > MaxValue:
			return "", tooLong(name, v)
		}
		EscapeValue(&b, v)
	}
	b.WriteString(t.text[len(t.names)])
	return b.String(), nil
}

func tooLong(name, v string) error {
	return &ValueError{Name: name, Why: fmt.Sprintf("has %d bytes, the limit is %d", len(v), MaxValue)}
}

// ValueError says which value of a request makes no name. Its text may be shown to the client: it does not contain the
// value. Err may contain the value, and is for the program's own log.
type ValueError struct {
	Name, Why string
	Err       error
}

// Error says which value it is and what is wrong with it.
func (e *ValueError) Error() string { return e.Name + " " + e.Why }

// Unwrap returns Err.
func (e *ValueError) Unwrap() error { return e.Err }

// EscapeValue writes v to b. It percent-encodes the characters % : / { } |, spaces, control characters and invalid
// UTF-8. Braces would choose the lock's slot on a cluster.
func EscapeValue(b *strings.Builder, v string) {
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

// reserved reports whether escaping replaces r.
func reserved(r rune) bool { return r == '%' || separator(r) }

// separator reports whether an escaped value never contains r: escaping replaces r, and does not emit it.
func separator(r rune) bool {
	switch r {
	case ':', '/', '{', '}', '|':
		return true
	}
	return unicode.IsSpace(r) || unicode.IsControl(r)
}

func endsInSeparator(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return separator(r)
}
