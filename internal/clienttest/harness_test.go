// Package clienttest tests the clients of package mortise, and what is made of several of them, mostly on memory. It
// sees mortise as users do, apart from engineOf and holdingOf.
package clienttest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/bridge"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/lease"
)

var (
	engineOf  = bridge.Engine.(func(*Client) *engine.Engine)
	holdingOf = bridge.Holding.(func(*Lease) lease.Holding)
)

// watchdogTimeout is a client's own, without WithWatchdogTimeout.
const watchdogTimeout = 30 * time.Second

// bubble runs a test in a bubble, where hours pass in no time, and a step that should not wait is seen to take none.
// The clients that open makes have one store.
func bubble(t *testing.T, f func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client)) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		f(t, s, func(opts ...ClientOption) *Client { return on(t, s, opts...) })
	})
}

// must ends the test if err is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants ends the test unless err is target.
func wants(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}

// noError reports an error, and the test goes on.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// need is the result of a call that must succeed: need(c.Lock(ctx, name))(t).
func need[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// errorOf is the error of a call whose result is of no interest.
func errorOf[T any](_ T, err error) error { return err }

// on opens clients of b and ends them with the test, without waiting for Unlocks.
func on(t testing.TB, b backend.Backend, opts ...ClientOption) *Client {
	t.Helper()
	c := need(New(b, opts...))(t)
	t.Cleanup(func() { c.Shutdown(ended()) })
	return c
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// newClient returns a client of a store of its own.
func newClient(t *testing.T, opts ...ClientOption) *Client {
	t.Helper()
	return on(t, memory.New(), opts...)
}

// recorder returns a logger, and what it has logged, by line.
func recorder() (*slog.Logger, func() []string) {
	var mu sync.Mutex
	var b bytes.Buffer
	w := writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return b.Write(p)
	})
	return slog.New(slog.NewTextHandler(w, nil)), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\n' })
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func contains(s, part string) bool { return strings.Contains(s, part) }

var errGone = errors.New("gone")

// sleepMachine has d pass on the wall clock only, as a machine that sleeps does.
func sleepMachine(c *Client, d time.Duration) { engineOf(c).Clock.Sleep(d) }

// standStill stops what keeps c's time, as a pause of its process would.
func standStill(c *Client, d time.Duration) {
	engineOf(c).Probe().OnTimers(func() { time.Sleep(d) })
	synctest.Wait()
}

func waits(c *Client) bool { return engineOf(c).Probe().Snapshot().Waiting > 0 }

type fakeLocker func(ctx context.Context, name string) (*Lease, error)

func (f fakeLocker) Lock(ctx context.Context, name string, _ ...Option) (*Lease, error) {
	return f(ctx, name)
}

func (f fakeLocker) TryLock(ctx context.Context, name string, _ ...Option) (*Lease, error) {
	return f(ctx, name)
}

// deaf hears nothing.
type deaf struct{}

func (deaf) Watching(backend.Topic) {}

func (deaf) Released(backend.Topic) {}

func (deaf) Changed(backend.Topic) {}

func (deaf) ChangedAll() {}

// counted is a spy with the kinds that count, fair and read-write locks.
func counted() *spy {
	return spyOn(memory.New(), "ReadWrite Fair Semaphores CountDownLatches CountingSemaphores", nil)
}

// held tells how many holds there are in a store, and whether they are c's.
func held(t *testing.T, c *Client) (holds int, mine bool) {
	t.Helper()
	st := need(c.Inspect(t.Context(), "x"))(t)
	return st.Holds, st.Mine
}

// thenUnlock unlocks what a call acquired: thenUnlock(c.Lock(ctx, name)).
func thenUnlock(l *Lease, err error) error {
	if err != nil {
		return err
	}
	return l.Unlock(context.Background())
}

// later is the result of f, which runs meanwhile.
func later[T any](f func() T) <-chan T {
	ch := make(chan T, 1)
	go func() { ch <- f() }()
	return ch
}

// waiter is a Lock that was called meanwhile.
type waiter <-chan answer

type answer struct {
	*Lease
	err error
}

// begin calls Lock.
func begin(ctx context.Context, l Locker, name string, opts ...Option) waiter {
	return later(func() answer {
		lease, err := l.Lock(ctx, name, opts...)
		return answer{lease, err}
	})
}

// queued calls Lock, in a bubble, and returns when it waits.
func queued(ctx context.Context, l Locker, name string, opts ...Option) waiter {
	w := begin(ctx, l, name, opts...)
	synctest.Wait()
	return w
}

// lease waits for the lock, which must be granted.
func (w waiter) lease(t *testing.T) *Lease {
	t.Helper()
	a := <-w
	must(t, a.err)
	return a.Lease
}
