package httplock_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/httplock"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The address that is dialled, or the server that answers, is not the named service, though it looks alike.
func TestAHostOtherThanTheURLsIsToldNothing(t *testing.T) {
	ctx := middle.Holding(t, middle.InMemory(t, memory.New()), "n").Context()
	issuer := middle.Issuer(t, middle.Ring(t, "k"))
	var told bool
	tr := httplock.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		told = r.Header.Get(delegation.Header) != ""
		return httptest.NewRecorder().Result(), nil
	}), issuer, httplock.Origins{"https://stock.internal": "stock"})
	for what, x := range map[string]struct {
		url  string
		edit func(*http.Request)
		want bool
	}{
		"as it is":             {"https://stock.internal/", nil, true},
		"upper case, its port": {"https://STOCK.internal:443/", nil, true},
		"its own Host": {"https://stock.internal/", func(r *http.Request) { r.Host = "stock.internal:443" },
			true},
		"no Host":      {"https://stock.internal/", func(r *http.Request) { r.Host = "" }, true},
		"another Host": {"https://stock.internal/", func(r *http.Request) { r.Host = "billing.internal" }, false},
		"an opaque part": {"https://stock.internal/", func(r *http.Request) { r.URL.Opaque = "//evil.example/x" },
			false},
		"a dotted capital I":       {"https://stock.\u0130nternal/", nil, false},
		"... escaped":              {"https://stock.%C4%B0nternal/", nil, false},
		"the sign of Kelvin":       {"https://stoc\u212a.internal/", nil, false},
		"a host that ends in a .":  {"https://stock.internal./", nil, false},
		"the same without TLS":     {"http://stock.internal/", nil, false},
		"a host with it as a user": {"https://stock.internal@evil.example/", nil, false},
	} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, x.url, nil)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if x.edit != nil {
			x.edit(r)
		}
		if _, err := tr.RoundTrip(r); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		check.ErrorIf(t, told != x.want, "%s: told is %v, want %v", what, told, x.want)
	}
	defer func() { check.ErrorIf(t, recover() == nil, "an origin with an international name is taken") }()
	httplock.NewTransport(nil, issuer, httplock.Origins{"https://stock.\u0130nternal": "stock"})
}

// A transport need not say which request its response answers.
func TestARedirectThatDoesNotSayWhoseItIsTellsNothing(t *testing.T) {
	ctx := middle.Holding(t, middle.InMemory(t, memory.New()), "n").Context()
	issuer := middle.Issuer(t, middle.Ring(t, "k"))
	told := map[string]bool{}
	tr := httplock.NewTransport(roundTrip(func(r *http.Request) (*http.Response, error) {
		told[r.URL.Host] = r.Header.Get(delegation.Header) != ""
		rec := httptest.NewRecorder()
		if strings.HasPrefix(r.URL.Host, "a.") {
			rec.Header().Set("Location", (&url.URL{Scheme: "https", Host: "b.internal", Path: "/chosen-by-a"}).String())
			rec.WriteHeader(http.StatusTemporaryRedirect)
		}
		return rec.Result(), nil // whose Request is nil
	}), issuer, httplock.Origins{"https://a.internal": "a", "https://b.internal": "b"})
	r := check.Value(http.NewRequestWithContext(ctx, http.MethodGet, "https://a.internal/", nil)).In(t)
	resp := check.Value((&http.Client{Transport: tr}).Do(r)).In(t)
	resp.Body.Close()
	check.ErrorIf(t, !told["a.internal"] || told["b.internal"], "told: %v", told)
}
