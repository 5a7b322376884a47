package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/mortise-go/mortise/middleware/internal/template"
)

// KeyFunc returns the name of the lock that a request needs. An error is answered with
// 400, and so is an empty name: it would be one lock for all. [ErrNoLock] lets the
// request pass without a lock. It is called before anything is locked, perhaps concurrently.
//
// Put something of your own before what the client chooses, as the ready ones make you do: a client that can name
// any lock can block any.
type KeyFunc func(*http.Request) (string, error)

// ErrNoLock is for a [KeyFunc] to return: this request needs no lock.
var ErrNoLock = errors.New("httplock: no lock is needed")

// RouteKey makes names of the route's path values: RouteKey("orders:{id}") locks
// "orders:42" for a request to /orders/42, if the route is "/orders/{id}". It reads
// [http.Request.PathValue], which http.ServeMux sets, and chi from 5.1.
//
// The middleware must stand behind the router, at the route: mux.Handle("POST /orders/{id}",
// lock(handler)), or chi's With; in chi's Use the route is not yet known. There,
// as for an empty value, the answer is 400.
//
// In values, the characters % : / { } | and spaces, control characters and bytes that are not UTF-8 are
// percent-encoded, so different values make different names. A value has at most 255 bytes.
//
// It panics if the template is malformed or has no placeholder.
func RouteKey(tmpl string) KeyFunc {
	t := parse("RouteKey", tmpl)
	return func(r *http.Request) (string, error) {
		return t.Expand(func(name string) (string, error) {
			v := r.PathValue(name)
			if v == "" {
				return "", &template.ValueError{Name: "path value {" + name + "}", Why: "is missing or empty"}
			}
			return v, nil
		})
	}
}

// HeaderKey makes names of headers: HeaderKey("payments:{Idempotency-Key}"). A header
// that is missing, empty or there twice is answered with 400. Values are encoded and bounded as for
// [RouteKey]. The names are shared by all clients; [Join] with a [ContextKey] of the caller
// keeps those of one apart from another's.
//
// It panics if the template is malformed or has no placeholder.
func HeaderKey(tmpl string) KeyFunc {
	t := parse("HeaderKey", tmpl)
	return func(r *http.Request) (string, error) {
		return t.Expand(func(name string) (string, error) {
			values := r.Header.Values(name)
			switch len(values) {
			case 0:
				return "", &template.ValueError{Name: "header " + name, Why: "is missing"}
			case 1:
				return values[0], nil
			}
			return "", &template.ValueError{Name: "header " + name, Why: "is there more than once"}
		})
	}
}

// ContextKey makes names of a value that middleware before this one put into the request's context: prefix
// and the value under key, a string, an integer or a fmt.Stringer, encoded and bounded as for
// [RouteKey]: ContextKey("tenants:", tenantKey{}). A missing or empty one is
// answered with 400.
//
// It panics if prefix is empty or key is nil.
func ContextKey(prefix string, key any) KeyFunc {
	if prefix == "" || key == nil {
		panic("httplock: ContextKey: the prefix and the key must not be empty: without a prefix the value could name any lock")
	}
	return func(r *http.Request) (string, error) {
		v := r.Context().Value(key)
		var s string
		switch x := v.(type) {
		case nil:
		case string:
			s = x
		case fmt.Stringer:
			s = x.String()
		default:
			switch rv := reflect.ValueOf(v); {
			case rv.Kind() == reflect.String:
				s = rv.String()
			case rv.CanInt(), rv.CanUint():
				s = fmt.Sprint(v)
			default:
				return "", fmt.Errorf("httplock: ContextKey: the value is a %T; it must be a string, an integer or a fmt.Stringer", v)
			}
		}
		switch {
		case s == "":
			return "", &template.ValueError{Name: "the caller's " + strings.TrimRight(prefix, ":/"), Why: "is missing or empty"}
		case len(s) > template.MaxValue:
			return "", &template.ValueError{Name: "the caller's " + strings.TrimRight(prefix, ":/"), Why: "is too long"}
		}
		var b strings.Builder
		b.WriteString(prefix)
		template.Escape(&b, s)
		return b.String(), nil
	}
}

// Join makes one name of several, "tenants:7|orders:42": one lock, for what has all
// of them in common. The first error ends it, [ErrNoLock] too. The parts are kept
// apart: a % or | in one of them is percent-encoded.
//
// It panics without keys, or with a nil one.
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

func parse(of, tmpl string) template.Template {
	t, err := template.Parse(tmpl)
	if err != nil {
		panic("httplock: " + of + ": " + err.Error())
	}
	return t
}
