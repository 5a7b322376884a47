//go:build unix

package httplock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// recorder is a transport that keeps the last request.
type recorder struct {
	got  *http.Request
	idle int
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.got = req
	return &http.Response{StatusCode: 200, Header: make(http.Header), Body: http.NoBody, Request: req}, nil
}

func (r *recorder) CloseIdleConnections() { r.idle++ }

// entries are what a request carries, in whatever case.
func entries(h http.Header) (all []string) {
	for name, values := range h {
		if strings.EqualFold(name, delegation.Header) {
			all = append(all, values...)
		}
	}
	return all
}

func TestOnlyNamedOriginsAreTold(t *testing.T) {
	locks, ring := middle.InMemory(t, memory.New()), middle.Ring(t, "k1")
	held := middle.Holding(t, locks, "orders:42").Context()
	var base recorder
	tr := httplock.NewTransport(&base, middle.Issuer(t, ring), httplock.Origins{
		"https://stock.internal": "stock", "http://127.0.0.1:8080": "local", "HTTPS://UPPER.internal:443": "upper",
		"http://[::1]:81": "six",
	})
	for url, audience := range map[string]string{
		"https://stock.internal/reserve":            "stock",
		"https://STOCK.internal:443/reserve?x=1":    "stock",
		"https://user:secret@stock.internal/":       "stock",
		"http://127.0.0.1:8080":                     "local",
		"https://upper.INTERNAL/":                   "upper",
		"http://[::1]:81/":                          "six",
		"http://stock.internal/reserve":             "", // could be read on its way
		"http://stock.internal:443/":                "",
		"https://stock.internal:8443/":              "",
		"https://stock.internal.evil.example/":      "",
		"https://stock.internal@evil.example/":      "",
		"https://evil.example/https/stock.internal": "",
		"https://evil.example/?stock.internal":      "",
		"https://sub.stock.internal/":               "",
		"http://127.0.0.1:80/":                      "",
	} {
		for _, ctx := range []context.Context{held, context.Background()} {
			req := check.Value(http.NewRequestWithContext(ctx, "POST", url, nil)).In(t)
			req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
			check.NoError(t, check.Err(tr.RoundTrip(req)))
			check.ErrorIf(t, len(req.Header) != 1, "%s: the request was altered: %v", url, req.Header)
			got := entries(base.got.Header)
			if ctx != held || audience == "" {
				check.ErrorIf(t, len(got) != 0 || base.got != req, "%s: sent %v", url, got)
				continue
			}
			check.FatalIf(t, len(got) != 1 || base.got.Header.Get("Traceparent") == "", "%s: sent %v", url, base.got.Header)
			p, err := middle.Checker(t, ring, audience).Check(ctx, got...)
			check.ErrorIf(t, err != nil || p.Delegations[0].Name != "orders:42", "%s: %+v, %v", url, p, err)
		}
	}
	(&http.Client{Transport: tr}).CloseIdleConnections()
	check.ErrorIf(t, base.idle != 1, "idle connections are not closed")
}

// What came in with another request, and was copied to this one, goes nowhere.
func TestAnIncomingHeaderIsNotSentOn(t *testing.T) {
	locks, ring := middle.InMemory(t, memory.New()), middle.Ring(t, "k1")
	held := middle.Holding(t, locks, "orders:42").Context()
	var base recorder
	tr := httplock.NewTransport(&base, middle.Issuer(t, ring), httplock.Origins{"https://stock.internal": "stock"})
	for _, url := range []string{"https://stock.internal/", "https://elsewhere.example/"} {
		for _, ctx := range []context.Context{held, context.Background()} {
			for _, name := range []string{delegation.Header, "mortise-delegation", "MORTISE-DELEGATION"} {
				req := check.Value(http.NewRequestWithContext(ctx, "POST", url, nil)).In(t)
				req.Header[name] = []string{"forged", "forged again"}
				check.NoError(t, check.Err(tr.RoundTrip(req)))
				got, want := entries(base.got.Header), 0
				if ctx == held && strings.Contains(url, "stock") {
					want = 1
				}
				check.ErrorIf(t, len(got) != want || strings.Contains(strings.Join(got, ""), "forged"),
					"%s, %s: sent %v", url, name, got)
				check.ErrorIf(t, len(req.Header[name]) != 2, "the request was altered")
			}
		}
	}
}

// A redirect does not take it along: not to a stranger, and not to a service that may know, but was not called.
func TestRedirects(t *testing.T) {
	locks, ring := middle.InMemory(t, memory.New()), middle.Ring(t, "k1")
	held := middle.Holding(t, locks, "orders:42").Context()
	var (
		mu   sync.Mutex
		seen = make(map[string][]string)
		srv  = make(map[string]*httptest.Server)
	)
	for _, name := range []string{"a", "b", "c"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			seen[name+r.URL.Path] = entries(r.Header)
			mu.Unlock()
			if to := r.URL.Query().Get("to"); to != "" {
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			}
		}))
		t.Cleanup(s.Close)
		srv[name] = s
	}
	client := &http.Client{Transport: httplock.NewTransport(nil, middle.Issuer(t, ring),
		httplock.Origins{srv["a"].URL: "a", srv["b"].URL: "b"})}
	get := func(url string) {
		req := check.Value(http.NewRequestWithContext(held, "GET", url, nil)).In(t)
		resp := check.Value(client.Do(req)).In(t)
		resp.Body.Close()
	}
	get(srv["a"].URL + "/1?to=" + srv["c"].URL + "/1")
	get(srv["a"].URL + "/2?to=" + srv["b"].URL + "/2")
	get(srv["a"].URL + "/3?to=/4")
	get(srv["c"].URL + "/5?to=" + srv["a"].URL + "/5")
	get(srv["a"].URL + "/6?to=" + srv["b"].URL + "/6%3Fto=" + srv["a"].URL + "/7") // and back
	for at, want := range map[string]int{"a/1": 1, "c/1": 0, "a/2": 1, "b/2": 0, "a/3": 1, "a/4": 1, "c/5": 0, "a/5": 0,
		"a/6": 1, "b/6": 0, "a/7": 0} {
		got, called := seen[at]
		check.ErrorIf(t, !called || len(got) != want, "%s was told %v; called: %v; want %d", at, got, called, want)
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestARequestThatCannotBeSignedIsNotSent(t *testing.T) {
	locks := middle.InMemory(t, memory.New())
	var base recorder
	tr := httplock.NewTransport(&base, middle.Issuer(t, middle.Away{}),
		httplock.Origins{"https://stock.internal": "stock"})
	body := &closing{Reader: strings.NewReader("x")}
	req := check.Value(http.NewRequestWithContext(middle.Holding(t, locks, "orders:42").Context(), "POST",
		"https://stock.internal/", body)).In(t)
	if resp, err := tr.RoundTrip(req); resp != nil || err == nil || !strings.Contains(err.Error(), "away") ||
		base.got != nil || !body.closed {
		t.Errorf("%v, %v, sent %v, the body is closed: %v", resp, err, base.got, body.closed)
	}
}

// Each refusal: its status, its type, its own error; the handler is not reached, and it is logged and counted.
func TestAcceptRefuses(t *testing.T) {
	locks, ring := middle.InMemory(t, memory.New()), middle.Ring(t, "k1")
	for _, test := range middle.Refusals(t, ring, "stock") {
		t.Run(test.Name, func(t *testing.T) {
			var (
				checked []error
				log     strings.Builder
				cause   error
			)
			status := 403
			if test.Malformed {
				status = 400
			}
			c := middle.Checker(t, ring, "stock", delegation.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
				delegation.WithObserver(delegation.Observer{Checked: func(e delegation.CheckedEvent) {
					checked = append(checked, e.Err)
				}}))
			accept := httplock.AcceptDelegations(locks, c,
				httplock.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p httplock.Problem) {
					cause = p.Err
					p.ServeHTTP(w, r)
				}))
			srv := httptest.NewServer(accept(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("the handler was reached")
			})))
			defer srv.Close()
			req, err := http.NewRequest("POST", srv.URL, nil)
			check.NoError(t, err)
			req.Header[delegation.Header] = test.Entries
			resp, err := http.DefaultClient.Do(req)
			check.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			check.ErrorIf(t, err != nil || resp.StatusCode != status ||
				!strings.Contains(string(body), httplock.TypeBadDelegation) ||
				!strings.Contains(string(body), delegation.Reason(test.Want)), "%d %s %v", resp.StatusCode, body, err)
			check.ErrorIf(t, strings.Contains(string(body), "orders:42") || strings.Contains(string(body), "billing"),
				"the answer gives something away: %s", body)
			check.ErrorIf(t, !errors.Is(cause, test.Want) || len(checked) != 1 || !errors.Is(checked[0], test.Want) ||
				!strings.Contains(log.String(), delegation.Reason(test.Want)),
				"cause %v, observed %v, logged %s", cause, checked, log.String())
		})
	}
	refused := func(name string, accept func(http.Handler) http.Handler, status int, retry, kind string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/", nil)
		r.Header.Set(delegation.Header, middle.Entry(t, ring, "stock", nil))
		accept(http.NotFoundHandler()).ServeHTTP(w, r)
		check.ErrorIf(t, w.Code != status || w.Header().Get("Retry-After") != retry ||
			!strings.Contains(w.Body.String(), kind), "%s: %d %s", name, w.Code, w.Body)
	}
	refused("the verifier fails", httplock.AcceptDelegations(locks, middle.Checker(t, middle.Away{}, "stock")),
		503, "1", httplock.TypeUnverified)
	refused("the backend cannot", httplock.AcceptDelegations(middle.Cannot(t), middle.Checker(t, ring, "stock")),
		500, "", httplock.TypeInternal)
}

func TestARequestThatTellsNothingPasses(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", nil)
	httplock.AcceptDelegations(middle.Cannot(t), middle.Checker(t, middle.Away{},
		"stock"))(http.HandlerFunc(func(_ http.ResponseWriter, got *http.Request) {
		check.ErrorIf(t, got != r, "it was altered")
	})).ServeHTTP(w, r)
	check.ErrorIf(t, w.Code != 200, "%v", w.Code)
}

// By hand, since no client sends this: two fields whose names differ in case, one that is continued on
// the next line, one with
// an underscore, which some servers take for the same, and one in a trailer.
func TestHeadersByHand(t *testing.T) {
	ring := middle.Ring(t, "k1")
	good := middle.Entry(t, ring, "stock", nil)
	var accepted []string
	locks := check.Value(mortise.New(memory.New())).In(t)
	defer locks.Close()
	srv := httptest.NewServer(httplock.AcceptDelegations(locks,
		middle.Checker(t, ring, "stock"))(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for _, d := range delegation.FromContext(r.Context()) {
			accepted = append(accepted, d.Name)
		}
		io.Copy(io.Discard, r.Body)
	})))
	defer srv.Close()
	for _, test := range []struct {
		name, headers, rest string
		status              int
		accepted            int
	}{
		{"as it should be", "Mortise-Delegation: " + good + "\r\n", "", 200, 1},
		{"in another case", "mORTISE-dELEGATION: " + good + "\r\n", "", 200, 1},
		{"twice, in two cases", "Mortise-Delegation: " + good + "\r\nmortise-delegation: " + good + "\r\n", "", 400, 0},
		{"continued", "Mortise-Delegation: " + good[:50] + "\r\n " + good[50:] + "\r\n", "", 400, 0},
		{"with an underscore", "Mortise_Delegation: " + good + "\r\n", "", 200, 0},
		{"in a trailer", "Trailer: Mortise-Delegation\r\nTransfer-Encoding: chunked\r\n", "0\r\nMortise-Delegation: " + good +
			"\r\n\r\n", 200, 0},
	} {
		accepted = nil
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		check.NoError(t, err)
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n%s", test.headers, test.rest)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		conn.Close()
		check.ErrorIf(t, err != nil || resp.StatusCode != test.status || len(accepted) != test.accepted,
			"%s: %v, %v; accepted %v", test.name, resp, err, accepted)
	}
}

// pair is service a, which holds orders:42 and calls b, which locks it too; and b may call a.
type pair struct {
	*testing.T
	ring   *delegation.Ring
	client *http.Client
	a, b   *httptest.Server
	store  *memory.Store
	la, lb *mortise.Client
}

// servers: what a and b do with a request, called with the lock held where the path is /orders/{id}.
func newPair(t *testing.T, told bool, a, b func(p *pair, w http.ResponseWriter, r *http.Request),
	opts ...httplock.Option) *pair {
	p := &pair{T: t, ring: middle.Ring(t, "k1"), store: memory.New()}
	p.la, p.lb = middle.InMemory(t, p.store), middle.InMemory(t, p.store)
	serve := func(name string, locks *mortise.Client, h func(*pair, http.ResponseWriter, *http.Request)) *httptest.Server {
		lock := httplock.New(locks, orders, opts...)
		accept := httplock.AcceptDelegations(locks, middle.Checker(t, p.ring, name))
		mux := http.NewServeMux()
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(p, w, r) })
		mux.Handle("/orders/{id}", accept(lock(handler)))
		mux.Handle("/plain/{id}", handler)
		srv := httptest.NewUnstartedServer(mux)
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.Config.BaseContext = func(net.Listener) context.Context { return context.Background() }
		srv.Start()
		t.Cleanup(srv.Close)
		return srv
	}
	p.a, p.b = serve("a", p.la, a), serve("b", p.lb, b)
	origins := httplock.Origins{}
	if told {
		origins = httplock.Origins{p.a.URL: "a", p.b.URL: "b"}
	}
	base := new(http.Transport)
	t.Cleanup(base.CloseIdleConnections)
	p.client = &http.Client{Transport: httplock.NewTransport(base, middle.Issuer(t, p.ring), origins)}
	return p
}

func (p *pair) call(ctx context.Context, url string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, "POST", url, nil)
	if err != nil {
		p.Error(err)
		return 0, ""
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check.Done(p, err)
	return resp.StatusCode, string(body)
}

func TestACalleeEntersItsCallersLock(t *testing.T) {
	// a -> b -> a, all of orders:42; the last one only answers.
	hop := func(next func(p *pair) string) func(*pair, http.ResponseWriter, *http.Request) {
		return func(p *pair, w http.ResponseWriter, r *http.Request) {
			h := entries(r.Header)
			check.ErrorIf(p, len(h) != 0, "the handler sees %v", h)
			if r.URL.Query().Get("last") != "" {
				fmt.Fprint(w, httplock.Lease(r.Context()).Name(), " held: ", httplock.Lease(r.Context()).Err())
				return
			}
			status, body := p.call(r.Context(), next(p))
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	a := hop(func(p *pair) string { return p.b.URL + "/orders/42" })
	b := hop(func(p *pair) string { return p.a.URL + "/orders/42?last=1" })
	t.Run("told", func(t *testing.T) {
		p := newPair(t, true, a, b)
		for range 3 {
			if status, body := p.call(context.Background(), p.a.URL+"/orders/42"); status != 200 ||
				body != "orders:42 held: <nil>" {
				t.Fatal(status, body)
			}
		}
		state, err := p.la.Inspect(context.Background(), "orders:42")
		check.ErrorIf(t, err != nil || state.Held, "%+v, %v", state, err)
	})
	t.Run("not told", func(t *testing.T) {
		p := newPair(t, false, a, b)
		if status, body := p.call(context.Background(), p.a.URL+"/orders/42"); status != 423 {
			t.Fatal(status, body)
		}
	})
}

// An entry that is used again when the caller's lock has ended gets nothing, and is told so.
func TestAReplayAfterTheRelease(t *testing.T) {
	p := newPair(t, true, nil, func(_ *pair, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "in") })
	lease := middle.Holding(t, p.la, "orders:42")
	entry := check.Value(middle.Issuer(t, p.ring).Issue(lease.Context(), "b")).In(t)
	replay := func() answer {
		req := check.Value(http.NewRequest("POST", p.b.URL+"/orders/42", nil)).In(t)
		req.Header.Set(delegation.Header, entry)
		return sendWith(http.DefaultClient, req)
	}
	s := &site{&middle.Site{T: t}}
	s.ok(replay(), "in")
	s.ok(replay(), "in") // while the hold lasts it is not the first only: see docs/explanation/threat-model.md
	check.NoError(t, lease.Unlock(context.Background()))
	s.want(replay(), 412, httplock.TypeDelegationEnded)
	again := middle.Holding(t, p.la, "orders:42") // another hold of the same client
	s.want(replay(), 412, httplock.TypeDelegationEnded)
	check.Done(t, again.Err())
	if status, body := p.call(context.Background(), p.b.URL+"/orders/42"); status != 423 {
		t.Error("one who is told nothing:", status, body)
	}
}

// Two requests of one caller at once: one after the other.
func TestParallelCalleesTakeTurns(t *testing.T) {
	var inside middle.Inside
	p := newPair(t, true, nil, func(*pair, http.ResponseWriter, *http.Request) { inside.Work() },
		httplock.WithWait(middle.Patience))
	lease := middle.Holding(t, p.la, "orders:42")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if status, body := p.call(lease.Context(), p.b.URL+"/orders/42"); status != 200 {
				t.Error(status, body)
			}
		})
	}
	wg.Wait()
	inside.Alone(t)
}

// A service that did not ask takes no notice.
func TestAServiceThatDidNotAskIsNotTold(t *testing.T) {
	locks := middle.InMemory(t, memory.New())
	lease := middle.Holding(t, locks, "orders:42")
	entry := check.Value(middle.Issuer(t, middle.Ring(t, "k1")).Issue(lease.Context(), "b")).In(t)
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", httplock.New(locks, orders)(http.HandlerFunc(fine)))
	w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/orders/42", nil)
	r.Header.Set(delegation.Header, entry)
	mux.ServeHTTP(w, r)
	check.ErrorIf(t, w.Code != 423, "%d %s", w.Code, w.Body)
}

func TestDelegationMistakesPanicWhenTheProgramStarts(t *testing.T) {
	i, c, locks := middle.Issuer(t, middle.Ring(t, "k1")), middle.Checker(t, middle.Ring(t, "k1"),
		"b"), middle.InMemory(t, memory.New())
	middle.Panic(t, "httplock: ", map[string]func(){
		"no issuer":      func() { httplock.NewTransport(nil, nil, nil) },
		"no scheme":      func() { httplock.NewTransport(nil, i, httplock.Origins{"stock.internal": "stock"}) },
		"a path":         func() { httplock.NewTransport(nil, i, httplock.Origins{"https://stock.internal/x": "stock"}) },
		"a query":        func() { httplock.NewTransport(nil, i, httplock.Origins{"https://stock.internal?x": "stock"}) },
		"a user":         func() { httplock.NewTransport(nil, i, httplock.Origins{"https://u@stock.internal": "stock"}) },
		"another scheme": func() { httplock.NewTransport(nil, i, httplock.Origins{"ftp://stock.internal": "stock"}) },
		"no host":        func() { httplock.NewTransport(nil, i, httplock.Origins{"https://:443": "stock"}) },
		"no name":        func() { httplock.NewTransport(nil, i, httplock.Origins{"https://stock.internal": ""}) },
		"a long name": func() {
			httplock.NewTransport(nil, i, httplock.Origins{"https://x": strings.Repeat("x", 256)})
		},
		"one, two names": func() {
			httplock.NewTransport(nil, i, httplock.Origins{"https://x": "a", "https://x:443": "b"})
		},
		"a nil option":      func() { httplock.AcceptDelegations(locks, c, nil) },
		"no client":         func() { httplock.AcceptDelegations(nil, c) },
		"no checker":        func() { httplock.AcceptDelegations(locks, nil) },
		"WithWait":          func() { httplock.AcceptDelegations(locks, c, httplock.WithWait(time.Second)) },
		"WithMaxClientWait": func() { httplock.AcceptDelegations(locks, c, httplock.WithMaxClientWait()) },
		"WithStatus":        func() { httplock.AcceptDelegations(locks, c, httplock.WithStatus(409)) },
		"WithStatus(200)":   func() { httplock.WithStatus(200) },
		"WithReaders":       func() { httplock.AcceptDelegations(locks, c, httplock.WithReaders(locks)) },
		"WithLockOptions": func() {
			httplock.AcceptDelegations(locks, c, httplock.WithLockOptions(mortise.WithLease(time.Second)))
		},
		"WithFailOpen": func() { httplock.AcceptDelegations(locks, c, httplock.WithFailOpen()) },
		"WithRetryAfter": func() {
			httplock.AcceptDelegations(locks, c, httplock.WithRetryAfter(time.Second))
		},
	})
}
