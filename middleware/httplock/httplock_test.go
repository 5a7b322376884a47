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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/redisgo"
)

// What can happen to a request, over real HTTP on a real Redis: each is answered as
// the package's documentation says, and leaves no lock.
func TestWhatCanHappen(t *testing.T) {
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
			c.run(newSite(t, redistest.WithAOF()))
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
		state, err := s.locks.Inspect(r.Context(), "orders:42")
		fmt.Fprint(w, lease.Name(), lease.Err(), state.Held, state.Mine, err)
	}, httplock.New(s.locks, orders))
	for range 3 { // at once: it was released before the answer
		s.ok(post(srv), "orders:42<nil> true true <nil>")
	}
	s.free("orders:42")
}

func refused(s *site) {
	h := newHeld()
	srv := s.serve(h.ServeHTTP, httplock.New(s.locks, orders))
	first := async(func() answer { return post(srv) })
	receive(s, "the first in the handler", h.in)
	a := post(srv)
	s.want(a, 423, httplock.TypeLocked)
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	check.ErrorIf(s, err != nil || after < 1 || after > 30,
		"Retry-After %q, of a lease of 30 s", a.Header.Get("Retry-After"))
	other := async(func() answer { return send(context.Background(), "POST", srv.URL+"/orders/43", "") })
	receive(s, "another key in the handler", h.in)
	close(h.let)
	s.ok(receive(s, "the first answer", first), "ok")
	s.ok(receive(s, "the other answer", other), "ok")
	s.free("orders:42")
	s.free("orders:43")
}

func conflicts(s *site) {
	h := newHeld()
	srv := s.serve(h.ServeHTTP, httplock.New(s.locks, httplock.HeaderKey("payments:{Idempotency-Key}"),
		httplock.WithConflict()))
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
	first := async(pay)
	receive(s, "the first in the handler", h.in)
	a := pay()
	check.ErrorIf(s, a.err != nil || a.StatusCode != 409 || a.Header.Get("Retry-After") == "" ||
		a.Header.Get("Content-Type") != "application/problem+json",
		"the same key again: %v %v", a.err, a.Response)
	close(h.let)
	receive(s, "the first answer", first)
	s.free("payments:8e03978e")
}

func waits(s *site) {
	h := newHeld()
	var srv = s.serve(h.ServeHTTP, httplock.New(s.locks, orders, httplock.WithWait(patience)))
	first := async(func() answer { return post(srv) })
	receive(s, "the first in the handler", h.in)
	second := async(func() answer { return post(srv) })
	h.let <- struct{}{}
	s.ok(receive(s, "the first answer", first), "ok")
	receive(s, "the second in the handler", h.in)
	h.let <- struct{}{}
	s.ok(receive(s, "the second answer", second), "ok")
	s.free("orders:42")
}

func (s *site) hold() *mortise.Lease {
	s.Helper()
	return check.Value(s.client().Lock(s.Context(), "orders:42")).In(s)
}

func (s *site) unlock(l *mortise.Lease) {
	s.Helper()
	check.Done(s, l.Unlock(context.Background()))
}

func waitsInVain(s *site) {
	lease := s.hold()
	srv := s.serve(fine, httplock.New(s.locks, orders, httplock.WithWait(2*time.Second)))
	a := post(srv)
	s.want(a, 423, httplock.TypeLocked)
	check.ErrorIf(s, a.Header.Get("Retry-After") == "", "no Retry-After")
	s.unlock(lease)
	s.ok(post(srv), "ok")
	s.free("orders:42")
}

// The client leaves with its body unread by any handler: the server notices it
// all the same.
func clientLeavesTheQueue(s *site) {
	lease := s.hold()
	problems := make(chan httplock.Problem, 1)
	began := make(chan struct{}, 1)
	srv := s.serve(func(http.ResponseWriter, *http.Request) { s.Error("it was served") },
		httplock.New(s.locks, func(r *http.Request) (string, error) { began <- struct{}{}; return orders(r) },
			httplock.WithClientWait(),
			httplock.WithAnswer(func(_ http.ResponseWriter, _ *http.Request, p httplock.Problem) { problems <- p })))
	ctx, leave := context.WithCancel(s.Context())
	got := async(func() answer { return send(ctx, "POST", srv.URL+"/orders/42", "{}") })
	receive(s, "the request", began)
	leave()
	receive(s, "the client", got)
	p := receive(s, "the end of the wait", problems)
	check.ErrorIf(s, p.Type != httplock.TypeClientGone || p.Status != 499 || !errors.Is(p.Err, context.Canceled), "%+v", p)
	s.unlock(lease)
	s.free("orders:42")
}

func clientLeavesTheHandler(s *site) {
	in, causes := make(chan struct{}), make(chan error, 1)
	srv := s.serve(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		close(in)
		select {
		case <-r.Context().Done():
			causes <- context.Cause(r.Context())
		case <-time.After(patience):
			causes <- nil
		}
	}, httplock.New(s.locks, orders))
	ctx, leave := context.WithCancel(s.Context())
	got := async(func() answer { return send(ctx, "POST", srv.URL+"/orders/42", "{}") })
	receive(s, "the request", in)
	leave()
	receive(s, "the client", got)
	err := receive(s, "the end of the request", causes)
	check.ErrorIf(s, !errors.Is(err, context.Canceled), "the cause is %v", err)
	s.free("orders:42")
}

func timesOut(s *site) {
	lease := s.hold()
	timeout := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), 200*time.Millisecond)
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
	srv := s.serve(fine, timeout, httplock.New(s.locks, orders, httplock.WithClientWait()))
	s.want(post(srv), 503, httplock.TypeTimeout)
	s.unlock(lease)
	s.free("orders:42")
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
	srv := s.serve(func(http.ResponseWriter, *http.Request) { panic("boom") }, outer, httplock.New(s.locks, orders))
	a := post(srv)
	check.ErrorIf(s, a.err != nil || a.StatusCode != 500, "%v %v", a.err, a.Response)
	check.Equal(s, "recovered %v", receive(s, "the panic", panicked), "boom")
	s.free("orders:42")
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
		check.Done(s, rc.SetWriteDeadline(time.Now().Add(patience)))
		fmt.Fprintln(w, "two")
		check.Done(s, rc.Flush())
		<-next
		io.WriteString(w, "three\n")
	}, httplock.New(s.locks, orders))
	resp := check.Value(http.Post(srv.URL+"/orders/42", "", nil)).In(s)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"one", "two", "three"} { // each arrives before the next is written
		line, err := lines.ReadString('\n')
		check.FatalIf(s, err != nil || line != want+"\n", "%q, %v", line, err)
		if want != "three" {
			n, err := s.redis.Do("EXISTS", "orders:42")
			check.ErrorIf(s, err != nil || n != int64(1), "after %q: EXISTS %v, %v", want, n, err)
			next <- struct{}{}
		}
	}
	s.free("orders:42")
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
	}, httplock.New(s.locks, orders))
	c := check.Value(net.Dial("tcp", srv.Listener.Addr().String())).In(s)
	defer c.Close()
	fmt.Fprint(c, "GET /orders/42 HTTP/1.1\r\nHost: x\r\n\r\nhello\n")
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "echo hello\n" {
		s.Errorf("%q, %v", line, err)
	}
	s.free("orders:42")
}

// The request in the handler finishes, the waiting request is refused.
func shutsDown(s *site) {
	h := newHeld()
	began := make(chan struct{}, 2)
	srv := s.serve(h.ServeHTTP, httplock.New(s.locks,
		func(r *http.Request) (string, error) { began <- struct{}{}; return orders(r) }, httplock.WithClientWait()))
	first := async(func() answer { return post(srv) })
	receive(s, "the first in the handler", h.in)
	<-began
	second := async(func() answer { return post(srv) })
	receive(s, "the second", began)

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	locksDown, serverDown := make(chan error, 1), make(chan error, 1)
	srv.Config.RegisterOnShutdown(func() { locksDown <- s.locks.Shutdown(ctx) })
	go func() { serverDown <- srv.Config.Shutdown(ctx) }()
	s.want(receive(s, "the second answer", second), 503, httplock.TypeClosing)
	close(h.let)
	s.ok(receive(s, "the first answer", first), "ok")
	check.Done(s, receive(s, "the locks' shutdown", locksDown))
	check.Done(s, receive(s, "the server's shutdown", serverDown))
	s.free("orders:42")
}

// tillLost is a handler that works until its context ends.
func tillLost(in chan<- struct{}, causes chan<- error, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		in <- struct{}{}
		select {
		case <-r.Context().Done():
			causes <- context.Cause(r.Context())
		case <-time.After(patience):
			causes <- nil
		}
		then(w, r)
	}
}

func nothing(http.ResponseWriter, *http.Request) {}

func redisDies(s *site) {
	in, causes := make(chan struct{}, 1), make(chan error, 1)
	srv := s.serve(tillLost(in, causes, nothing),
		httplock.New(s.locks, orders, httplock.WithLockOptions(mortise.WithLease(3*time.Second))))
	got := async(func() answer { return post(srv) })
	receive(s, "the request", in)
	s.redis.Stop()
	err := receive(s, "the loss", causes)
	check.ErrorIf(s, !errors.Is(err, mortise.ErrLost), "the cause is %v", err)
	s.want(receive(s, "the answer", got), 503, httplock.TypeLost)
	s.redis.Restart() // with the data it had
	s.free("orders:42")
}

func redisDown(s *site) {
	srv := s.serve(fine, httplock.New(s.locks, orders))
	s.redis.Stop()
	a := post(srv)
	s.want(a, 503, httplock.TypeUnavailable)
	check.ErrorIf(s, strings.Contains(a.body, "127.0.0.1") || strings.Contains(a.body, "orders:42"),
		"the answer gives the store away: %s", a.body)
	s.redis.Restart()
	s.until("served again", func() bool { a := post(srv); return a.err == nil && a.StatusCode == 200 })
	s.free("orders:42")
}

func failOpen(s *site) {
	srv := s.serve(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, httplock.Lease(r.Context()) == nil)
	}, httplock.New(s.locks, orders, httplock.WithFailOpen()))
	lease := s.hold()
	s.want(post(srv), 423, httplock.TypeLocked) // held is not down
	s.unlock(lease)
	s.redis.Stop()
	s.ok(post(srv), "true")
}

func lockLost(s *site) {
	in, causes := make(chan struct{}, 1), make(chan error, 1)
	srv := s.serve(tillLost(in, causes, nothing),
		httplock.New(s.client(mortise.WithWatchdogTimeout(3*time.Second)), orders))
	got := async(func() answer { return post(srv) })
	receive(s, "the request", in)
	check.NoError(s, check.Err(s.locks.ForceUnlock(s.Context(), "orders:42")))
	err := receive(s, "the loss", causes)
	check.ErrorIf(s, !errors.Is(err, mortise.ErrLost), "the cause is %v", err)
	s.want(receive(s, "the answer", got), 503, httplock.TypeLost)
	s.free("orders:42")
}

func lockLostAnswered(s *site) {
	in, causes := make(chan struct{}, 1), make(chan error, 1)
	srv := s.serve(tillLost(in, causes, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "half done", http.StatusTeapot)
	}), httplock.New(s.locks, orders, httplock.WithLockOptions(mortise.WithLease(5*time.Second))))
	got := async(func() answer { return post(srv) })
	receive(s, "the request", in)
	receive(s, "the loss", causes)
	a := receive(s, "the answer", got)
	check.ErrorIf(s, a.err != nil || a.StatusCode != http.StatusTeapot || a.body != "half done\n",
		"%v %d %q", a.err, a.StatusCode, a.body)
	s.free("orders:42")
}

func nested(s *site) {
	lock := httplock.New(s.locks, orders)
	srv := s.serve(func(w http.ResponseWriter, r *http.Request) {
		err := mortise.Do(r.Context(), s.locks, "orders:42", func(ctx context.Context) error {
			state, err := s.locks.Inspect(ctx, "orders:42")
			fmt.Fprint(w, state.Holds)
			return err
		})
		check.Done(s, err)
	}, lock, lock)
	s.ok(post(srv), "3")
	s.free("orders:42")
}

func readers(s *site) {
	read, write := s.locks.RW()
	h := newHeld()
	srv := s.serve(h.ServeHTTP, httplock.New(write, orders, httplock.WithReaders(read)))
	url := srv.URL + "/orders/42"
	get := async(func() answer { return send(context.Background(), "GET", url, "") })
	receive(s, "a reader", h.in)
	head := async(func() answer { return send(context.Background(), "HEAD", url, "") })
	receive(s, "another", h.in)
	s.want(post(srv), 423, httplock.TypeLocked)
	close(h.let)
	s.ok(receive(s, "GET", get), "ok")
	s.ok(receive(s, "HEAD", head), "")
	s.ok(post(srv), "ok")
	s.free("orders:42")
}

func badKeys(s *site) {
	for name, key := range map[string]httplock.KeyFunc{
		"empty":          func(*http.Request) (string, error) { return "", nil },
		"an error":       func(*http.Request) (string, error) { return "secret", errors.New("secret") },
		"not on a route": httplock.RouteKey("orders:{order}"),
		"no header":      httplock.HeaderKey("payments:{Idempotency-Key}"),
		"braces":         func(*http.Request) (string, error) { return "orders:}", nil },
	} {
		a := post(s.serve(fine, httplock.New(s.locks, key)))
		s.want(a, 400, httplock.TypeBadKey)
		check.ErrorIf(s, strings.Contains(a.body, "secret"), "%s: the answer gives the error away: %s", name, a.body)
	}
}

func wrongKind(s *site) {
	check.NoError(s, check.Err(s.redis.Do("SET", "orders:42", "x")))
	s.want(post(s.serve(fine, httplock.New(s.locks, orders))), 500, httplock.TypeInternal)
}

func noLock(s *site) {
	srv := s.serve(fine, httplock.New(s.locks, func(*http.Request) (string, error) { return "", httplock.ErrNoLock }))
	s.redis.Stop()
	s.ok(post(srv), "ok")
}

func replaced(s *site) {
	lease := s.hold()
	srv := s.serve(fine, httplock.New(s.locks, orders,
		httplock.WithAnswer(func(w http.ResponseWriter, r *http.Request, p httplock.Problem) {
			check.ErrorIf(s, p.Name != "orders:42" || !errors.Is(p.Err, mortise.ErrNotAcquired), "%+v", p)
			p.Status, p.Detail = 418, r.Method
			p.ServeHTTP(w, r)
		})))
	a := post(srv)
	s.want(a, 418, httplock.TypeLocked)
	check.ErrorIf(s, a.problem.Detail != "POST", "%v", a.body)
	s.unlock(lease)
	s.free("orders:42")
}

// A locked request costs two commands, seen at a proxy.
func TestARequestCostsTwoCommands(t *testing.T) {
	s := newSite(t)
	proxy := redistest.NewProxy(t, s.redis.Addr())
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
