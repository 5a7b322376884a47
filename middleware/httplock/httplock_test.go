//go:build unix

package httplock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/redisgo"
)

// What can happen to a request, over real HTTP on a real Redis: each is answered as
// the package's documentation says, and leaves no lock.
func TestWhatCanHappen(t *testing.T) {
	check.Long(t)
	for _, c := range []struct {
		name string
		run  func(*site)
	}{
		{"it is served, and its key is free", served},
		{"another holds the key", refused},
		{"another holds the Idempotency-Key", conflicts},
		{"it waits its turn", waits},
		{"it waits in vain", waitsInVain},
		{"the client goes away while it waits", clientLeavesTheQueue},
		{"the client goes away while it is served", clientLeavesTheHandler},
		{"its time runs out while it waits", timesOut},
		{"the handler panics", panics},
		{"the handler streams", streams},
		{"the handler hijacks", hijacks},
		{"the server shuts down", shutsDown},
		{"Redis dies while it is served", redisDies},
		{"Redis is down", redisDown},
		{"Redis is down and it may go on", failOpen},
		{"the lock is lost while it is served", lockLost},
		{"the lock is lost and the handler answers", lockLostAnswered},
		{"the same key is locked within", nested},
		{"readers share", readers},
		{"the key is bad", badKeys},
		{"the name is in use for something else", wrongKind},
		{"it needs no lock", noLock},
		{"all answers are replaced", replaced},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.WithAOF())
			c.run(s)
			s.Free(middle.Order)
		})
	}
}

func fine(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// held is a handler that stays until it is told to go.
type held struct {
	in  chan *http.Request
	let chan struct{}
}

func newHeld() *held { return &held{make(chan *http.Request, 16), make(chan struct{})} }

func (h *held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.in <- r
	<-h.let
	io.WriteString(w, "ok")
}

func served(s *site) {
	srv := s.serve(func(w http.ResponseWriter, r *http.Request) {
		lease := httplock.Lease(r.Context())
		state, err := s.Locks.Inspect(r.Context(), "orders:42")
		fmt.Fprint(w, lease.Name(), lease.Err(), state.Held, state.Mine, err)
	}, httplock.New(s.Locks, orders))
	for range 3 { // at once: it was released before the answer
		s.ok(post(srv), "orders:42<nil> true true <nil>")
	}
}

func refused(s *site) {
	h := newHeld()
	srv := s.serve(h.ServeHTTP, httplock.New(s.Locks, orders))
	first := middle.Async(func() answer { return post(srv) })
	middle.Receive(s, "the first in the handler", h.in)
	a := post(srv)
	s.want(a, 423, httplock.TypeLocked)
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	check.ErrorIf(s, err != nil || after != 3,
		"Retry-After %q, of a lease of 30 s, want 3", a.Header.Get("Retry-After"))
	other := middle.Async(func() answer { return send(context.Background(), "POST", srv.URL+"/orders/43", "") })
	middle.Receive(s, "another key in the handler", h.in)
	close(h.let)
	s.ok(middle.Receive(s, "the first answer", first), "ok")
	s.ok(middle.Receive(s, "the other answer", other), "ok")
	s.Free("orders:42")
	s.Free("orders:43")
}

func conflicts(s *site) {
	h := newHeld()
	srv := s.serve(h.ServeHTTP, httplock.New(s.Locks, httplock.HeaderKey("payments:{Idempotency-Key}"),
		httplock.WithStatus(http.StatusConflict)))
	pay := func() answer {
		req, err := http.NewRequest("POST", srv.URL+"/orders/1", nil)
		if err != nil {
			return answer{err: err}
		}
		req.Header.Set("Idempotency-Key", "8e03978e")
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return answer{Response: resp, err: err}
	}
	first := middle.Async(pay)
	middle.Receive(s, "the first in the handler", h.in)
	a := pay()
	check.ErrorIf(s, a.err != nil || a.StatusCode != 409 || a.Header.Get("Retry-After") == "" ||
		a.Header.Get("Content-Type") != "application/problem+json",
		"the same key again: %v %v", a.err, a.Response)
	close(h.let)
	middle.Receive(s, "the first answer", first)
	s.Free("payments:8e03978e")
}

func waits(s *site) {
	h := newHeld()
	var srv = s.serve(h.ServeHTTP, httplock.New(s.Locks, orders, httplock.WithWait(middle.Patience)))
	first := middle.Async(func() answer { return post(srv) })
	middle.Receive(s, "the first in the handler", h.in)
	second := middle.Async(func() answer { return post(srv) })
	h.let <- struct{}{}
	s.ok(middle.Receive(s, "the first answer", first), "ok")
	middle.Receive(s, "the second in the handler", h.in)
	h.let <- struct{}{}
	s.ok(middle.Receive(s, "the second answer", second), "ok")
}

func waitsInVain(s *site) {
	release := s.Hold()
	srv := s.serve(fine, httplock.New(s.Locks, orders, httplock.WithWait(2*time.Second)))
	a := post(srv)
	s.want(a, 423, httplock.TypeLocked)
	check.ErrorIf(s, a.Header.Get("Retry-After") == "", "no Retry-After")
	release()
	s.ok(post(srv), "ok")
}

// The client leaves with its body unread by any handler: the server notices it
// all the same.
func clientLeavesTheQueue(s *site) {
	release := s.Hold()
	problems := make(chan httplock.Problem, 1)
	began := make(chan struct{}, 1)
	srv := s.serve(func(http.ResponseWriter, *http.Request) { s.Error("it was served") },
		httplock.New(s.Locks, func(r *http.Request) (string, error) { began <- struct{}{}; return orders(r) },
			httplock.WithMaxClientWait(),
			httplock.WithErrorHandler(func(_ http.ResponseWriter, _ *http.Request, p httplock.Problem) { problems <- p })))
	ctx, leave := context.WithCancel(s.Context())
	got := middle.Async(func() answer { return send(ctx, "POST", srv.URL+"/orders/42", "{}") })
	middle.Receive(s, "the request", began)
	leave()
	middle.Receive(s, "the client", got)
	p := middle.Receive(s, "the end of the wait", problems)
	check.ErrorIf(s, p.Type != httplock.TypeClientGone || p.Status != 499 || !errors.Is(p.Err, context.Canceled), "%+v", p)
	release()
}

func clientLeavesTheHandler(s *site) {
	in, causes := make(chan struct{}, 1), make(chan error, 1)
	srv := s.serve(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		middle.TillEnded(r.Context(), in, causes)
	}, httplock.New(s.Locks, orders))
	ctx, leave := context.WithCancel(s.Context())
	got := middle.Async(func() answer { return send(ctx, "POST", srv.URL+"/orders/42", "{}") })
	middle.Receive(s, "the request", in)
	leave()
	middle.Receive(s, "the client", got)
	err := middle.Receive(s, "the end of the request", causes)
	check.ErrorIf(s, !errors.Is(err, context.Canceled), "the cause is %v", err)
}

func timesOut(s *site) {
	release := s.Hold()
	timeout := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), 200*time.Millisecond)
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	srv := s.serve(fine, timeout, httplock.New(s.Locks, orders, httplock.WithMaxClientWait()))
	s.want(post(srv), 503, httplock.TypeTimeout)
	release()
}

func panics(s *site) {
	panicked := make(chan any, 1)
	outer := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				panicked <- recover()
				w.WriteHeader(http.StatusInternalServerError)
			}()
			next.ServeHTTP(w, r)
		})
	}
	srv := s.serve(func(http.ResponseWriter, *http.Request) { panic("boom") }, outer, httplock.New(s.Locks, orders))
	a := post(srv)
	check.ErrorIf(s, a.err != nil || a.StatusCode != 500, "%v %v", a.err, a.Response)
	check.Equal(s, "recovered %v", middle.Receive(s, "the panic", panicked), "boom")
}

func streams(s *site) {
	next := make(chan struct{})
	srv := s.serve(func(w http.ResponseWriter, r *http.Request) {
		_, ok := w.(io.ReaderFrom)
		check.ErrorIf(s, !ok, "no io.ReaderFrom")
		fmt.Fprintln(w, "one")
		w.(http.Flusher).Flush()
		<-next
		rc := http.NewResponseController(w)
		check.Done(s, rc.SetWriteDeadline(time.Now().Add(middle.Patience)))
		fmt.Fprintln(w, "two")
		check.Done(s, rc.Flush())
		<-next
		io.WriteString(w, "three\n")
	}, httplock.New(s.Locks, orders))
	resp := check.Value(http.Post(srv.URL+"/orders/42", "", nil)).In(s)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"one", "two", "three"} { // each arrives before the next is written
		line, err := lines.ReadString('\n')
		check.FatalIf(s, err != nil || line != want+"\n", "%q, %v", line, err)
		if want != "three" {
			n, err := s.Redis.Do("EXISTS", "orders:42")
			check.ErrorIf(s, err != nil || n != int64(1), "after %q: EXISTS %v, %v", want, n, err)
			next <- struct{}{}
		}
	}
}

func hijacks(s *site) {
	srv := s.serve(func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			s.Error(err)
			return
		}
		defer c.Close()
		line, _ := rw.ReadString('\n')
		fmt.Fprint(c, "echo ", line)
	}, httplock.New(s.Locks, orders))
	c := check.Value(net.Dial("tcp", srv.Listener.Addr().String())).In(s)
	defer c.Close()
	fmt.Fprint(c, "GET /orders/42 HTTP/1.1\r\nHost: x\r\n\r\nhello\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "echo hello\n" {
		s.Errorf("%q, %v", line, err)
	}
}

// The request in the handler finishes, the waiting request is refused.
func shutsDown(s *site) {
	h := newHeld()
	began := make(chan struct{}, 2)
	srv := s.serve(h.ServeHTTP, httplock.New(s.Locks,
		func(r *http.Request) (string, error) { began <- struct{}{}; return orders(r) }, httplock.WithMaxClientWait()))
	first := middle.Async(func() answer { return post(srv) })
	middle.Receive(s, "the first in the handler", h.in)
	<-began
	second := middle.Async(func() answer { return post(srv) })
	middle.Receive(s, "the second", began)

	ctx, cancel := context.WithTimeout(context.Background(), middle.Patience)
	defer cancel()
	locksDown, serverDown := make(chan error, 1), make(chan error, 1)
	srv.Config.RegisterOnShutdown(func() { locksDown <- s.Locks.Shutdown(ctx) })
	go func() { serverDown <- srv.Config.Shutdown(ctx) }()
	s.want(middle.Receive(s, "the second answer", second), 503, httplock.TypeClosing)
	close(h.let)
	s.ok(middle.Receive(s, "the first answer", first), "ok")
	check.Done(s, middle.Receive(s, "the locks' shutdown", locksDown))
	check.Done(s, middle.Receive(s, "the server's shutdown", serverDown))
}

// tillLost is a handler that works until its context ends.
func tillLost(in chan<- struct{}, causes chan<- error, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		middle.TillEnded(r.Context(), in, causes)
		then(w, r)
	}
}

func nothing(http.ResponseWriter, *http.Request) {}

func redisDies(s *site) {
	in, causes := make(chan struct{}, 1), make(chan error, 1)
	srv := s.serve(tillLost(in, causes, nothing),
		httplock.New(s.Locks, orders, httplock.WithLockOptions(mortise.WithLease(3*time.Second))))
	got := middle.Async(func() answer { return post(srv) })
	middle.Receive(s, "the request", in)
	s.Redis.Stop()
	err := middle.Receive(s, "the loss", causes)
	check.ErrorIf(s, !errors.Is(err, mortise.ErrLost), "the cause is %v", err)
	s.want(middle.Receive(s, "the answer", got), 500, httplock.TypeLost)
	s.Redis.Restart() // with the data it had
}

func redisDown(s *site) {
	srv := s.serve(fine, httplock.New(s.Locks, orders))
	s.Redis.Stop()
	a := post(srv)
	s.want(a, 503, httplock.TypeUnavailable)
	check.ErrorIf(s, strings.Contains(a.body, "127.0.0.1") || strings.Contains(a.body, "orders:42"),
		"the answer gives the store away: %s", a.body)
	s.Redis.Restart()
	s.Until("served again", func() bool { a := post(srv); return a.err == nil && a.StatusCode == 200 })
}

func failOpen(s *site) {
	srv := s.serve(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, httplock.Lease(r.Context()) == nil)
	}, httplock.New(s.Locks, orders, httplock.WithFailOpen()))
	release := s.Hold()
	s.want(post(srv), 423, httplock.TypeLocked) // held is not down
	release()
	s.Redis.Stop()
	s.ok(post(srv), "true")
	s.Redis.Restart()
}

func lockLost(s *site) {
	in, causes := make(chan struct{}, 1), make(chan error, 1)
	srv := s.serve(tillLost(in, causes, nothing),
		httplock.New(s.Client(mortise.WithWatchdogTimeout(3*time.Second)), orders))
	got := middle.Async(func() answer { return post(srv) })
	middle.Receive(s, "the request", in)
	check.NoError(s, check.Err(s.Locks.ForceUnlock(s.Context(), "orders:42", "")))
	err := middle.Receive(s, "the loss", causes)
	check.ErrorIf(s, !errors.Is(err, mortise.ErrLost), "the cause is %v", err)
	s.want(middle.Receive(s, "the answer", got), 500, httplock.TypeLost)
}

func lockLostAnswered(s *site) {
	in, causes := make(chan struct{}, 1), make(chan error, 1)
	srv := s.serve(tillLost(in, causes, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "half done", http.StatusTeapot)
	}), httplock.New(s.Locks, orders, httplock.WithLockOptions(mortise.WithLease(5*time.Second))))
	got := middle.Async(func() answer { return post(srv) })
	middle.Receive(s, "the request", in)
	middle.Receive(s, "the loss", causes)
	a := middle.Receive(s, "the answer", got)
	check.ErrorIf(s, a.err != nil || a.StatusCode != http.StatusTeapot || a.body != "half done\n",
		"%v %d %q", a.err, a.StatusCode, a.body)
}

func nested(s *site) {
	lock := httplock.New(s.Locks, orders)
	srv := s.serve(func(w http.ResponseWriter, r *http.Request) {
		err := mortise.Do(r.Context(), s.Locks, "orders:42", func(ctx context.Context) error {
			state, err := s.Locks.Inspect(ctx, "orders:42")
			fmt.Fprint(w, state.Holds)
			return err
		})
		check.Done(s, err)
	}, lock, lock)
	s.ok(post(srv), "3")
}

func readers(s *site) {
	read, write := s.Locks.RW().Read, s.Locks.RW().Write
	h := newHeld()
	srv := s.serve(h.ServeHTTP, httplock.New(write, orders, httplock.WithReaders(read)))
	url := srv.URL + "/orders/42"
	get := middle.Async(func() answer { return send(context.Background(), "GET", url, "") })
	middle.Receive(s, "a reader", h.in)
	head := middle.Async(func() answer { return send(context.Background(), "HEAD", url, "") })
	middle.Receive(s, "another", h.in)
	s.want(post(srv), 423, httplock.TypeLocked)
	close(h.let)
	s.ok(middle.Receive(s, "GET", get), "ok")
	s.ok(middle.Receive(s, "HEAD", head), "")
	s.ok(post(srv), "ok")
}

func badKeys(s *site) {
	for name, key := range map[string]httplock.KeyFunc{
		"empty":          func(*http.Request) (string, error) { return "", nil },
		"an error":       func(*http.Request) (string, error) { return "secret", errors.New("secret") },
		"not on a route": httplock.RouteKey("orders:{order}"),
		"no header":      httplock.HeaderKey("payments:{Idempotency-Key}"),
		"braces":         func(*http.Request) (string, error) { return "orders:}", nil },
	} {
		a := post(s.serve(fine, httplock.New(s.Locks, key)))
		s.want(a, 400, httplock.TypeBadKey)
		check.ErrorIf(s, strings.Contains(a.body, "secret"), "%s: the answer gives the error away: %s", name, a.body)
	}
}

func wrongKind(s *site) {
	check.NoError(s, check.Err(s.Redis.Do("SET", "orders:42", "x")))
	s.want(post(s.serve(fine, httplock.New(s.Locks, orders))), 500, httplock.TypeInternal)
	s.Redis.Must("DEL", "orders:42")
}

func noLock(s *site) {
	srv := s.serve(fine, httplock.New(s.Locks, func(*http.Request) (string, error) { return "", httplock.ErrNoLock }))
	s.Redis.Stop()
	s.ok(post(srv), "ok")
	s.Redis.Restart()
}

func replaced(s *site) {
	release := s.Hold()
	srv := s.serve(fine, httplock.New(s.Locks, orders,
		httplock.WithErrorHandler(func(w http.ResponseWriter, r *http.Request, p httplock.Problem) {
			check.ErrorIf(s, p.Name != "orders:42" || !errors.Is(p.Err, mortise.ErrNotAcquired), "%+v", p)
			p.Status, p.Detail = 418, r.Method
			p.ServeHTTP(w, r)
		})))
	a := post(srv)
	s.want(a, 418, httplock.TypeLocked)
	check.ErrorIf(s, a.problem.Detail != "POST", "%v", a.body)
	release()
}

// A locked request costs two commands, seen at a proxy.
func TestARequestCostsTwoCommands(t *testing.T) {
	s := newSite(t)
	proxy := redistest.NewProxy(t, s.Redis.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	locks := check.Value(mortise.New(redisgo.New(rdb))).In(t)
	t.Cleanup(func() { locks.Close(); rdb.Close() })
	srv := s.serve(fine, httplock.New(locks, orders))
	s.ok(post(srv), "ok") // connects, loads scripts
	proxy.Reset()
	const n = 10
	for range n {
		s.ok(post(srv), "ok")
	}
	if got := proxy.Count(nil); got != 2*n {
		t.Errorf("%d requests cost %d commands, want 2 each:\n%s", n, got, strings.Join(proxy.Commands(), "\n"))
	}
}

// BenchmarkRequest: an uncontended key over real HTTP, and the bare handler.
func BenchmarkRequest(b *testing.B) {
	server := redistest.Start(b)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := check.Value(mortise.New(redisgo.New(rdb))).In(b)
	defer locks.Close()
	bare := http.HandlerFunc(fine)
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"bare", bare}, {"locked", httplock.New(locks, orders)(bare)}} {
		b.Run(c.name, func(b *testing.B) {
			w := &discard{header: http.Header{}}
			r := check.Value(http.NewRequest("POST", "/orders/42", nil)).In(b)
			r.SetPathValue("id", "42")
			for b.Loop() {
				c.handler.ServeHTTP(w, r)
			}
			check.FatalIf(b, w.status != 0, "refused with %d", w.status)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "µs/request")
		})
	}
}

type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(status int)      { d.status = status }

// A request that is served unlocked has no lease, also behind a middleware that holds another lock.
func TestFailOpenWithinAnotherLock(t *testing.T) {
	down := memory.New()
	name := func(s string) httplock.KeyFunc { return func(*http.Request) (string, error) { return s, nil } }
	outer := httplock.New(middle.InMemory(t, memory.New()), name("tenants:1"))
	inner := httplock.New(middle.InMemory(t, down), name("orders:42"), httplock.WithFailOpen())
	down.SetDown(errors.New("down"))
	w := httptest.NewRecorder()
	outer(inner(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if l := httplock.Lease(r.Context()); l != nil {
			t.Errorf("served without the inner lock, with the lease of %s", l.Name())
		}
	}))).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
	check.ErrorIf(t, w.Code != 200, "answered %d %s", w.Code, w.Body)
}

// A request that waits for an inner lock when it loses the outer one has lost a lock; its client has not left.
func TestALockLostWhileTheRequestWaitsForAnother(t *testing.T) {
	store := memory.New()
	locks := middle.InMemory(t, store)
	middle.Holding(t, middle.InMemory(t, store), "orders:42")
	outer := httplock.New(locks, func(*http.Request) (string, error) { return "tenants:1", nil },
		httplock.WithLockOptions(mortise.WithMaxHold(50*time.Millisecond)))
	inner := httplock.New(locks, func(*http.Request) (string, error) { return "orders:42", nil },
		httplock.WithWait(middle.Patience))
	w := httptest.NewRecorder()
	outer(inner(http.NotFoundHandler())).ServeHTTP(w, httptest.NewRequest("POST", "/", nil))
	check.ErrorIf(t, w.Code != 500 || !strings.Contains(w.Body.String(), httplock.TypeLost) ||
		w.Header().Get("Retry-After") != "", "answered %d %s", w.Code, w.Body)
}
