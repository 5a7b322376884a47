package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"unicode"

	"github.com/mortise-go/mortise/middleware"
)

// KeyFunc returns the name of a request's lock. An error is answered with 400, and so is an empty
// name: an empty name would be one lock for all. [ErrNoLock] lets the request pass without a lock.
// KeyFunc is called before any lock is taken, perhaps concurrently.
//
// Put a prefix of the program before the client's text, as the ready keys require: a client with
// free choice of names can block any lock. And make a single name of all texts with the same
// meaning to the handler, as {id:int} does in [RouteKey].
type KeyFunc func(*http.Request) (string, error)

// ErrNoLock is for a [KeyFunc] to return: this request needs no lock.
var ErrNoLock = errors.New("httplock: no lock is needed")

// RouteKey makes names of the route's path values: RouteKey("orders:{id}") locks "orders:42" for a
// request to /orders/42, if the route is "/orders/{id}". RouteKey reads [http.Request.PathValue],
// set by http.ServeMux, and by chi from 5.1.
//
// The middleware must stand behind the router, at the route: mux.Handle("POST /orders/{id}",
// lock(handler)), or chi's With or Group. The Use of a chi router runs before that router has matched its
// patterns, so it knows only the values of the pattern under which the router itself stands:
// router.Route("/orders/{id}", func(r chi.Router) { r.Use(lock); ... }). A value that is not known is
// answered with 400, as an empty value is.
//
// The name is made of a value's TEXT. A handler that parses the value may take several texts for the same
// value: strconv.Atoi reads 42, 042 and +42 as one number, but the three texts are three locks, so
// three requests for one account run at a time. Declare how to read such a value:
//
//	httplock.RouteKey("accounts:{id:int}") // a decimal integer of 64 bits; {id:uuid}: a UUID of 36 characters
//
// The handler then finds the canonical text, 42, in [http.Request.PathValue], and other texts are answered
// with 400. Integers lose the plus sign and leading zeros, UUIDs become lower case. For other values there is
// [Canonical].
//
// A value still percent-encoded is answered with 400. chi hands over 4%32 where http.ServeMux hands
// over 42, and the handler's reading of 4%32 cannot be known. Values with such a sequence need a
// custom KeyFunc.
//
// In values, the characters % : / { } | and spaces, control characters and invalid UTF-8 are
// percent-encoded, so different texts make different names. A value has at most 255 bytes.
//
// {path...} is the rest of a path, of the route "/files/{path...}"; {*}, of chi's "/files/*".
//
// RouteKey panics if the template is malformed, has no placeholder, or one that names no path value, or has no text of
// the program's own with a final : or / before the first placeholder.
func RouteKey(tmpl string, opts ...KeyOption) KeyFunc {
	t := parse("RouteKey", tmpl, opts)
	for _, name := range t.Names() {
		if !pathName(name) {
			panic(fmt.Sprintf("httplock: RouteKey: %q: {%s} is no name of a path value: letters, digits, _ and -, "+
				"with ... behind it if the route has them; or *, as in chi", tmpl, name))
		}
	}
	return func(r *http.Request) (string, error) {
		return t.Expand(func(name string) (string, error) {
			label := "path value {" + name + "}"
			name, placeholder := strings.TrimSuffix(name, "..."), name
			v := r.PathValue(name)
			if v == "" {
				return "", &middleware.ValueError{Name: label, Why: "is missing or empty"}
			}
			if plain, err := url.PathUnescape(v); err == nil && plain != v {
				return "", &middleware.ValueError{Name: label, Why: "is percent-encoded more than is needed"}
			}
			c, err := t.Canonical(placeholder, label, v)
			if err == nil && c != v {
				r.SetPathValue(name, c)
			}
			return c, err
		})
	}
}

// pathName reports whether a placeholder can name a path value of a router.
func pathName(name string) bool {
	name = strings.TrimSuffix(name, "...")
	return name == "*" || name != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '_' && c != '-' && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	})
}

// KeyOption changes what [RouteKey] or [HeaderKey] makes of values: see [Canonical].
type KeyOption struct {
	placeholder string
	canonical   func(string) (string, error)
}

// Canonical makes f compute the canonical text of a placeholder's values, where {id:int} and {id:uuid} in the
// template do not fit. Lock and handler share the canonical text: the text is part of the lock's name,
// and replaces the value in the request (http.Request.PathValue, or the header). Other readers,
// such as chi.URLParam, still see the original text.
//
// f gets 1 to 255 bytes. Texts with the same meaning to the handler must become the same, so f
// reads as the handler does, or refuses: an error, or an empty text, is answered with 400, and the
// client does not see the error. f must return its own results unchanged. f is called concurrently.
func Canonical(placeholder string, f func(value string) (string, error)) KeyOption {
	return KeyOption{placeholder, f}
}

// HeaderKey makes names of headers: HeaderKey("payments:{Idempotency-Key}"). A missing, empty or
// duplicate header is answered with 400. Values are encoded and bounded as for [RouteKey].
//
// All clients share the names: a client that guesses the key of another can keep the other
// out. [Join] with a [ContextKey] of the authenticated caller keeps callers apart.
//
// As with RouteKey, the name is made of the value's text. The text is right for an Idempotency-Key,
// an opaque value. For a value that the handler parses, such as a number, declare the form in the template, or by
// [Canonical]; the handler then finds the canonical text in the request's header. The value of {Host} is
// [http.Request.Host], which may have a port, and letters in either case.
//
// HeaderKey panics as RouteKey does.
func HeaderKey(tmpl string, opts ...KeyOption) KeyFunc {
	t := parse("HeaderKey", tmpl, opts)
	return func(r *http.Request) (string, error) {
		return t.Expand(func(name string) (string, error) {
			values, label := r.Header.Values(name), "header "+name
			host := http.CanonicalHeaderKey(name) == "Host" && r.Host != ""
			if host { // net/http removes it from r.Header
				values = []string{r.Host}
			}
			switch {
			case len(values) == 0:
				return "", &middleware.ValueError{Name: label, Why: "is missing"}
			case len(values) > 1:
				return "", &middleware.ValueError{Name: label, Why: "is there more than once"}
			}
			c, err := t.Canonical(name, label, values[0])
			switch {
			case err != nil, c == values[0]:
			case host:
				r.Host = c
			default:
				r.Header = r.Header.Clone() // the map may be shared
				r.Header.Set(name, c)
			}
			return c, err
		})
	}
}

// ContextKey makes names of a value in the request's context, put there by earlier middleware:
// prefix and the value under key, a string, an integer or a fmt.Stringer, encoded and bounded as
// for [RouteKey]: ContextKey("tenants:", tenantKey{}). A missing or empty value, or a nil pointer, is
// answered with 400. A string is used unchanged: the earlier middleware makes the string canonical.
//
// ContextKey panics if prefix is empty or key is nil.
func ContextKey(prefix string, key any) KeyFunc {
	if prefix == "" || key == nil {
		panic("httplock: ContextKey: the prefix and the key must not be empty: " +
			"without a prefix the value could name any lock")
	}
	return func(r *http.Request) (string, error) {
		v := r.Context().Value(key)
		var s string
		switch x := v.(type) {
		case nil:
		case string:
			s = x
		case fmt.Stringer:
			if rv := reflect.ValueOf(v); rv.Kind() != reflect.Pointer || !rv.IsNil() {
				s = x.String()
			}
		default:
			switch rv := reflect.ValueOf(v); {
			case rv.Kind() == reflect.String:
				s = rv.String()
			case rv.CanInt(), rv.CanUint():
				s = fmt.Sprint(v)
			default:
				return "", fmt.Errorf("httplock: ContextKey: the value is a %T; "+
					"it must be a string, an integer or a fmt.Stringer", v)
			}
		}
		caller := "the caller's " + strings.TrimRight(prefix, ":/")
		switch {
		case s == "":
			return "", &middleware.ValueError{Name: caller, Why: "is missing or empty"}
		case len(s) > middleware.MaxValue:
			return "", &middleware.ValueError{Name: caller, Why: "is too long"}
		}
		var b strings.Builder
		b.WriteString(prefix)
		middleware.EscapeValue(&b, s)
		return b.String(), nil
	}
}

// Join makes a single name of several, "tenants:7|orders:42": one lock, for requests with all the
// names in common. The first error ends Join, [ErrNoLock] too. The parts are kept apart: a % or |
// in a part is percent-encoded.
//
// Join panics without keys, or with a nil key.
func Join(keys ...KeyFunc) KeyFunc {
	if len(keys) == 0 {
		panic("httplock: Join of no keys")
	}
	for _, k := range keys {
		if k == nil {
			panic("httplock: Join: a KeyFunc is nil")
		}
	}
	return func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		for i, k := range keys {
			part, err := k(r)
			if err != nil {
				return "", err
			}
			if part == "" {
				return "", errEmptyKey
			}
			parts[i] = joint.Replace(part)
		}
		return strings.Join(parts, "|"), nil
	}
}

var joint = strings.NewReplacer("%", "%25", "|", "%7C")

var errEmptyKey = errors.New("httplock: the key is empty: all such requests would share one lock")

func parse(of, tmpl string, opts []KeyOption) middleware.Template {
	t, err := middleware.ParseTemplate(tmpl)
	for _, o := range opts {
		if err == nil {
			err = t.SetCanonical(o.placeholder, o.canonical)
		}
	}
	if err != nil {
		panic("httplock: " + of + ": " + err.Error())
	}
	return t
}
