package httplock_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// arrivals sends requests to a middleware without a network. Requests for orders 42 to 49 find their lock held.
type arrivals struct {
	h       http.Handler
	release []func()
	all     sync.WaitGroup
	mu      sync.Mutex
	got     map[string]int // answers, by status and type
}

func arrive(t *testing.T, opts ...httplock.Option) *arrivals {
	locks := middle.InMemory(t, memory.New())
	a := &arrivals{got: make(map[string]int)}
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", httplock.New(locks, orders, opts...)(http.HandlerFunc(fine)))
	a.h = mux
	for id := 42; id < 50; id++ {
		l := middle.Holding(t, locks, fmt.Sprint("orders:", id))
		a.release = append(a.release, func() { check.Done(t, l.Unlock(t.Context())) })
	}
	return a
}

// send sends n requests for an order, and returns when each is answered, or waits.
func (a *arrivals) send(n int, id string) {
	for range n {
		a.all.Go(func() {
			w := httptest.NewRecorder()
			a.h.ServeHTTP(w, httptest.NewRequest("POST", "/orders/"+id, strings.NewReader("{}")))
			kind := ""
			if _, hash, ok := strings.Cut(w.Body.String(), "problems.md#"); ok {
				kind, _, _ = strings.Cut(hash, `"`)
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			a.got[strings.TrimSpace(fmt.Sprint(w.Code, " ", kind, " ", w.Header().Get("Retry-After")))]++
		})
	}
	synctest.Wait()
}

func (a *arrivals) answers(t *testing.T, what, want string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	check.Equal(t, what+": %v", fmt.Sprint(a.got), want)
	clear(a.got)
}

func TestRequestsBeyondTheLimitsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := arrive(t, httplock.WithMaxClientWait(), httplock.WithMaxWaiters(3, 5))
		a.send(3, "42")
		a.answers(t, "as many as may wait for a lock", "map[]")
		a.send(2, "42")
		a.answers(t, "more for the lock", "map[429 too-many-waiting 3:2]")
		a.send(2, "43")
		a.answers(t, "as many as may wait in all", "map[]")
		a.send(2, "44")
		a.send(1, "50")
		a.answers(t, "more in all, one of them for a free lock", "map[200:1 429 too-many-waiting 3:2]")
		for _, release := range a.release {
			release()
		}
		synctest.Wait()
		a.answers(t, "once the locks are released", "map[200:5]")
		a.all.Wait()
	})
}

// A flood of requests for a busy name leaves a bounded number of them waiting.
func TestAFloodMeetsTheDefaultLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := arrive(t, httplock.WithMaxClientWait())
		a.send(2000, "42")
		a.answers(t, "for a lock", fmt.Sprintf("map[429 too-many-waiting 3:%d]", 2000-httplock.DefaultMaxWaiters))
		a.release[0]()
		a.all.Wait()
		a.answers(t, "once the lock is released", fmt.Sprintf("map[200:%d]", httplock.DefaultMaxWaiters))
	})
}

// The limit in all is one for all middlewares of a process that do not set their own: they share its memory.
func TestMiddlewaresShareTheDefaultLimitInAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var services []*arrivals
		for range 9 {
			a := arrive(t, httplock.WithMaxClientWait())
			a.send(500, "42")
			services = append(services, a)
		}
		last := services[8]
		last.answers(t, "of 4,500", fmt.Sprintf("map[429 too-many-waiting 3:%d]", 4500-httplock.DefaultMaxWaitersInAll))
		own := arrive(t, httplock.WithMaxClientWait(), httplock.WithMaxWaiters(3, 3))
		own.send(4, "42")
		own.answers(t, "a limit of its own", "map[429 too-many-waiting 3:1]")
		for _, a := range append(services, own) {
			a.release[0]()
			a.all.Wait()
		}
		last.send(1, "43")
		last.answers(t, "afterwards", "map[200:96]")
		last.release[1]()
		last.all.Wait()
	})
}

// 4,096 bodies of 64 KiB are 256 MiB: see SECURITY.md.
func TestABodyThatIsReadAheadTakesNoMoreMemoryThanItsBound(t *testing.T) {
	for _, length := range []int{0, 1, 5000, 40 << 10, 64<<10 - 1, 64 << 10} {
		for _, announced := range []int64{int64(length), -1} {
			r := httptest.NewRequest("POST", "/", io.NopCloser(strings.NewReader(strings.Repeat("x", length))))
			r.ContentLength = announced
			got, whole := httplock.ReadAhead(httptest.NewRecorder(), r)
			check.ErrorIf(t, !whole || got > 64<<10, "%d bytes, announced %d: whole %v, %d bytes of memory",
				length, announced, whole, got)
		}
	}
}

func TestALimitOfNoWaitersIsRefused(t *testing.T) {
	middle.Panic(t, "httplock: WithMaxWaiters(", map[string]func(){
		"for a lock": func() { httplock.WithMaxWaiters(0, 1) },
		"in all":     func() { httplock.WithMaxWaiters(1, 0) },
	})
}
