package httplock_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/asked"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

type tries struct {
	mortise.Locker
	unasked chan bool
}

func (l tries) TryLock(ctx context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	l.unasked <- !asked.Is(ctx)
	return l.Locker.TryLock(ctx, name, opts...)
}

func TestTheStoreIsAskedForAPipelinedRequest(t *testing.T) {
	locks := middle.InMemory(t, memory.New())
	held42(t, locks)
	l := tries{locks, make(chan bool, 1)}
	srv := serveByHand(t, httplock.New(l, orders, httplock.WithWait(time.Second))(http.HandlerFunc(fine)))
	c := dial(t, srv)
	io.WriteString(c, "GET /orders/42 HTTP/1.1\r\nHost: x\r\n\r\n"+strings.Repeat("x", 100<<10))
	answerOf(t, c)
	check.Equal(t, "the held cache may refuse: %v", <-l.unasked, false)
}

type embedded struct{ net.Conn }

type ownWriter struct {
	http.ResponseWriter
	*embedded
}

func TestAResponseWriterWithANilEmbeddedPointerIsServed(t *testing.T) {
	h := httplock.New(middle.InMemory(t, memory.New()), orders, httplock.WithWait(time.Second))(http.HandlerFunc(fine))
	mux := http.NewServeMux()
	mux.HandleFunc("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&ownWriter{ResponseWriter: w}, r)
	})
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/orders/1", nil))
}

func TestARequestThatIsOverIsNotCounted(t *testing.T) {
	check.Long(t)
	locks := middle.InMemory(t, memory.New())
	release := held42(t, locks)
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", httplock.New(locks, orders, httplock.WithWait(middle.Patience),
		httplock.WithMaxWaiters(9, 1))(http.HandlerFunc(fine)))
	late := http.TimeoutHandler(mux, 50*time.Millisecond, "late")
	top := http.NewServeMux()
	top.Handle("/orders/", mux)
	top.Handle("/late/", http.StripPrefix("/late", late))
	srv := httptest.NewServer(top)
	t.Cleanup(srv.Close)
	c := dial(t, srv)
	io.WriteString(c, "POST /late/orders/42 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
	time.Sleep(300 * time.Millisecond)
	time.AfterFunc(300*time.Millisecond, release)
	resp := check.Value(http.Get(srv.URL + "/orders/42")).In(t)
	resp.Body.Close()
	check.Equal(t, "the next: %d", resp.StatusCode, 200)
	c.Close()
}

func TestABodyThatWasReadIsNotKept(t *testing.T) {
	check.Long(t)
	const n = 200
	read, stay := make(chan int), make(chan int)
	path := func(r *http.Request) (string, error) { return r.URL.Path, nil }
	h := httplock.New(middle.InMemory(t, memory.New()), path,
		httplock.WithWait(time.Minute))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		read <- 1
		<-stay
	}))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			r := httptest.NewRequest("POST", fmt.Sprint("/", i), &zeros{64 << 10})
			r.ContentLength = 64 << 10
			h.ServeHTTP(httptest.NewRecorder(), r)
		})
	}
	for range n {
		<-read
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n; each > 32<<10 {
		t.Errorf("%d bytes a request", each)
	}
	close(stay)
	all.Wait()
}
