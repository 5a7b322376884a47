package httplock_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

type tenantKey struct{}

func TestKeys(t *testing.T) {
	r := httptest.NewRequest("POST", "/", nil)
	r.SetPathValue("id", "42")
	r.SetPathValue("odd", "a:b/c|{d} é%\xff")
	r.SetPathValue("encoded", "4%32")
	r.SetPathValue("percent", "100%")
	r.SetPathValue("zeros", "-007")
	r.SetPathValue("uuid", "6F9619FF-8B86-D011-B42D-00CF4FC964FF")
	r.SetPathValue("long", strings.Repeat("x", 256))
	r.Header.Set("Idempotency-Key", "8e03")
	r.Header.Add("Twice", "1")
	r.Header.Add("Twice", "2")
	r = r.WithContext(context.WithValue(r.Context(), tenantKey{}, 7))
	const bad = ""
	for _, c := range []struct {
		what string
		key  httplock.KeyFunc
		want string
	}{
		{"a path value", httplock.RouteKey("orders:{id}"), "orders:42"},
		{"two, with text around", httplock.RouteKey("a/{id}:{id}/z"), "a/42:42/z"},
		{"what is special in a value", httplock.RouteKey("x:{odd}"), "x:a%3Ab%2Fc%7C%7Bd%7D%20é%25%FF"},
		{"one that is still encoded", httplock.RouteKey("orders:{encoded}"), bad},
		{"one with a percent sign", httplock.RouteKey("orders:{percent}"), "orders:100%25"},
		{"a canonical integer", httplock.RouteKey("a:{zeros:int}/{zeros}"),
			"a:-7/-7"},
		{"no integer", httplock.RouteKey("a:{odd:int}"), bad},
		{"a canonical UUID", httplock.RouteKey("a:{uuid:uuid}"),
			"a:6f9619ff-8b86-d011-b42d-00cf4fc964ff"},
		{"no UUID", httplock.RouteKey("a:{id:uuid}"), bad},
		{"an empty canonical form", httplock.RouteKey("a:{id}",
			httplock.Canonical("id", func(string) (string, error) { return "", nil })), bad},
		{"too long for its canonical form",
			httplock.RouteKey("a:{long}", httplock.Canonical("long",
				func(s string) (string, error) { t.Errorf("called with %d bytes", len(s)); return "x", nil })), bad},
		{"no such path value", httplock.RouteKey("orders:{order}"), bad},
		{"too long a value", httplock.RouteKey("orders:{long}"), bad},
		{"a header", httplock.HeaderKey("pay:{idempotency-key}"), "pay:8e03"},
		{"no such header", httplock.HeaderKey("pay:{X}"), bad},
		{"a header twice", httplock.HeaderKey("pay:{Twice}"), bad},
		{"a value from the context", httplock.ContextKey("tenants:", tenantKey{}), "tenants:7"},
		{"no such value", httplock.ContextKey("tenants:", "other"), bad},
		{"several", httplock.Join(httplock.ContextKey("tenants:", tenantKey{}), httplock.RouteKey("orders:{id}")),
			"tenants:7|orders:42"},
		{"several, one missing", httplock.Join(httplock.RouteKey("orders:{id}"), httplock.HeaderKey("pay:{X}")), bad},
		{"several, one empty", httplock.Join(func(*http.Request) (string, error) { return "", nil },
			httplock.RouteKey("orders:{id}")), bad},
	} {
		got, err := c.key(r)
		check.ErrorIf(t, got != c.want || (err != nil) != (c.want == bad), "%s: %q, %v; want %q", c.what, got, err, c.want)
	}
	join := func(a, b string) string {
		as := func(s string) httplock.KeyFunc { return func(*http.Request) (string, error) { return s, nil } }
		return check.Value(httplock.Join(as(a), as(b))(r)).In(t)
	}
	check.ErrorIf(t, join("a|b", "c") == join("a", "b|c") || join("a%7Cb", "c") == join("a|b", "c"),
		"Join makes one name of different keys")
}

// Mistakes in the program show when it starts, not at the first request.
func TestMisuse(t *testing.T) {
	locks := mortise.Locker((*mortise.Client)(nil))
	key := httplock.RouteKey("orders:{id}")
	middle.Panic(t, "httplock: ", map[string]func(){
		"a nil option":          func() { httplock.New(locks, key, nil) },
		"a nil handler":         func() { httplock.New(locks, key)(nil) },
		"no Locker":             func() { httplock.New(nil, key) },
		"no key":                func() { httplock.New(locks, nil) },
		"no placeholder":        func() { httplock.RouteKey("orders") },
		"an empty template":     func() { httplock.HeaderKey("") },
		"an open brace":         func() { httplock.RouteKey("orders:{id") },
		"a closing brace":       func() { httplock.RouteKey("orders:id}") },
		"an empty placeholder":  func() { httplock.RouteKey("orders:{}") },
		"nested braces":         func() { httplock.RouteKey("{{id}}") },
		"an ambiguous one":      func() { httplock.RouteKey("orders:{a}-{b}") },
		"what escaping emits":   func() { httplock.RouteKey("t:{A}%{B}") },
		"no text before":        func() { httplock.RouteKey("{id}:orders") },
		"no separator before":   func() { httplock.HeaderKey("orders{Id}") },
		"a percent before":      func() { httplock.HeaderKey("orders%{Id}") },
		"no such placeholder":   func() { httplock.RouteKey("a:{b}", httplock.Canonical("c", unchanged)) },
		"no function":           func() { httplock.RouteKey("a:{b}", httplock.Canonical("b", nil)) },
		"a form and a function": func() { httplock.RouteKey("a:{b:uuid}", httplock.Canonical("b", unchanged)) },
		"two forms":             func() { httplock.RouteKey("a:{b:uuid}/{b:int}") },
		"no such form":          func() { httplock.RouteKey("a:{b:[0-9]+}") },
		"an empty form":         func() { httplock.HeaderKey("a:{b:}") },
		"no prefix":             func() { httplock.ContextKey("", 1) },
		"nothing to join":       func() { httplock.Join() },
		"a negative wait":       func() { httplock.WithWait(-1) },
		"no readers":            func() { httplock.WithReaders(nil) },
		"no answer":             func() { httplock.WithErrorHandler(nil) },
	})
}

// A handler that asks what its ResponseWriter can do gets the answer that it would
// get without the middleware.
func TestTheWriterCanDoWhatItCould(t *testing.T) {
	key := func(*http.Request) (string, error) { return "x", nil }
	for _, plain := range []bool{true, false} {
		handler := httplock.New(granting{}, key)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, ok := w.(http.Flusher)
			check.ErrorIf(t, ok == plain, "http.Flusher %v", ok)
			_, ok = w.(http.Hijacker)
			check.ErrorIf(t, ok, "http.Hijacker")
			err := http.NewResponseController(w).Flush()
			check.ErrorIf(t, (err != nil) != plain, "Flush: %v", err)
			_, _, err = http.NewResponseController(w).Hijack()
			check.ErrorIf(t, err == nil, "hijacked")
		}))
		var w http.ResponseWriter = httptest.NewRecorder()
		if plain {
			w = struct{ http.ResponseWriter }{w}
		}
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	}
}

// Also of writers that can do some of it.
func TestTheWriterCanDoWhatItCouldInAllCombinations(t *testing.T) {
	type (
		w = http.ResponseWriter
		f = http.Flusher
		h = http.Hijacker
		r = io.ReaderFrom
	)
	can := func(v http.ResponseWriter) [3]bool {
		_, flushes := v.(f)
		_, hijacks := v.(h)
		_, reads := v.(r)
		return [3]bool{flushes, hijacks, reads}
	}
	key := func(*http.Request) (string, error) { return "x", nil }
	rec := httptest.NewRecorder()
	for _, below := range []http.ResponseWriter{
		struct{ w }{rec}, struct {
			w
			f
		}{w: rec}, struct {
			w
			h
		}{w: rec}, struct {
			w
			r
		}{w: rec}, struct {
			w
			f
			h
		}{w: rec}, struct {
			w
			f
			r
		}{w: rec}, struct {
			w
			h
			r
		}{w: rec}, struct {
			w
			f
			h
			r
		}{w: rec},
	} {
		httplock.New(granting{}, key)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			got, want := can(w), can(below)
			check.ErrorIf(t, got != want, "Flusher, Hijacker, ReaderFrom: %v, want %v", got, want)
		})).ServeHTTP(below, httptest.NewRequest("GET", "/", nil))
	}
}

// granting is a Locker that grants everything.
type granting struct{}

func (granting) Lock(ctx context.Context, name string, _ ...mortise.Option) (*mortise.Lease, error) {
	return mortise.NewLease(ctx, name, 0, nil), nil
}

func (granting) TryLock(ctx context.Context, name string, _ ...mortise.Option) (*mortise.Lease, error) {
	return mortise.NewLease(ctx, name, 0, nil), nil
}

type tenantID struct{ id string }

func (t *tenantID) String() string { return t.id }

// A request without a caller has a nil pointer in its context where the others have theirs.
func TestANilValueInTheContextIsMissing(t *testing.T) {
	type caller struct{}
	key := httplock.ContextKey("tenants:", caller{})
	for _, v := range []any{nil, (*tenantID)(nil), &tenantID{}} {
		r := httptest.NewRequest("POST", "/", nil)
		w := httptest.NewRecorder()
		httplock.New(granting{}, key)(http.NotFoundHandler()).ServeHTTP(w,
			r.WithContext(context.WithValue(r.Context(), caller{}, v)))
		check.ErrorIf(t, w.Code != 400 || !strings.Contains(w.Body.String(), "missing"), "%#v: %d %s", v, w.Code, w.Body)
	}
	r := httptest.NewRequest("POST", "/", nil)
	name, err := key(r.WithContext(context.WithValue(r.Context(), caller{}, &tenantID{"7"})))
	check.ErrorIf(t, err != nil || name != "tenants:7", "%q, %v", name, err)
}

// unchanged is for Canonical.
func unchanged(value string) (string, error) { return value, nil }
