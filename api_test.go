package mortise

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

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

func newClient(t *testing.T, opts ...ClientOption) *Client {
	t.Helper()
	c := on(t, memory.New(), opts...)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestBadInputIsRefusedWithARemedy(t *testing.T) {
	c := newClient(t)
	lock := func(name string, opts ...Option) error {
		_, err := c.Lock(t.Context(), name, opts...)
		return err
	}
	try := func(name string, opts ...Option) error {
		_, err := c.TryLock(t.Context(), name, opts...)
		return err
	}
	for _, tt := range []struct {
		what string
		err  error
		is   error
		says string
	}{
		{"empty name", lock(""), ErrInvalidName, "empty"},
		{"not UTF-8", lock("a\xff"), ErrInvalidName, "UTF-8"},
		{"long name", lock(strings.Repeat("x", 70000)), ErrInvalidName, "65536"},
		{"stray brace", lock("a}b"), ErrInvalidName, "slot"},
		{"unmatched brace", lock("a{b"), ErrInvalidName, "hash tag"},
		{"empty tag", lock("a{}b"), ErrInvalidName, "hash tag"},
		{"zero lease", lock("x", WithLease(0)), ErrInvalid, "WithLease(0s)"},
		{"negative lease", lock("x", WithLease(-time.Second)), ErrInvalid, "WithLease(-1s)"},
		{"tiny lease", lock("x", WithLease(time.Millisecond)), ErrInvalid, "50ms"},
		{"endless lease", lock("x", WithLease(MaxLease+1)), ErrInvalid, "8760h"},
		{"zero wait", lock("x", WithWait(0)), ErrInvalid, "TryLock"},
		{"wait on TryLock", try("x", WithWait(time.Second)), ErrInvalid, "use Lock"},
		{"lease and max hold", lock("x", WithLease(time.Second), WithMaxHold(time.Second)), ErrInvalid, "WithMaxHold"},
		{"tiny max hold", lock("x", WithMaxHold(1)), ErrInvalid, "WithMaxHold(1ns)"},
		{"nil option", lock("x", nil), ErrInvalid, "nil Option"},
		{"nil context", func() error { _, err := c.Lock(nil, "x"); return err }(), ErrInvalid, "context.Background"}, //nolint:staticcheck // the point
		{"nil backend", func() error { _, err := New(nil); return err }(), ErrInvalid, "memory.New()"},
		{"empty id", func() error { _, err := New(memory.New(), WithID("")); return err }(), ErrInvalid, "WithID"},
		{"short watchdog", func() error { _, err := New(memory.New(), WithWatchdogTimeout(1)); return err }(), ErrInvalid, "1s"},
		{"nil lease", (*Lease)(nil).Unlock(t.Context()), ErrNotHeld, "nil"},
		{"nil Locker", Do(t.Context(), nil, "x", func(context.Context) error { return nil }), ErrInvalid, "nil"},
		{"inspect nothing", func() error { _, err := c.Inspect(t.Context(), ""); return err }(), ErrInvalidName, "empty"},
	} {
		if !errors.Is(tt.err, tt.is) || !strings.Contains(tt.err.Error(), tt.says) {
			t.Errorf("%s: %v", tt.what, tt.err)
		}
		var e *Error
		if !errors.As(tt.err, &e) {
			t.Errorf("%s: %T is no *Error", tt.what, tt.err)
		}
	}
	for _, name := range []string{"x", "ordres:42", "{a}b", "a{b}c", "x}{y}", "日本\x00\n"} {
		l := need(c.Lock(t.Context(), name))(t)
		must(t, l.Unlock(t.Context()))
	}
}

func TestOptionsAreComparable(t *testing.T) {
	if WithWait(time.Second) != WithWait(time.Second) || WithLease(1) == WithWait(1) {
		t.Error("options do not compare")
	}
}

func TestNilLeaseHoldsNothing(t *testing.T) {
	var l *Lease
	if l.Name() != "" || l.Err() == nil || l.Context().Err() == nil {
		t.Error("a nil lease pretends to hold")
	}
	if _, fenced := l.Token(); fenced {
		t.Error("a nil lease has a token")
	}
}

func TestStandInLease(t *testing.T) {
	calls := 0
	l := NewLease(t.Context(), "x", func(context.Context) error { calls++; return nil }, LeaseToken(7))
	must(t, l.Err())
	if n, ok := l.Token(); n != 7 || !ok || l.Name() != "x" {
		t.Error("token or name")
	}
	must(t, l.Unlock(t.Context()))
	wants(t, l.Err(), ErrReleased)
	wants(t, context.Cause(l.Context()), ErrReleased)
	wants(t, l.Unlock(t.Context()), ErrNotHeld)
	if calls != 1 {
		t.Errorf("unlock called %d times", calls)
	}

	ctx, lose := context.WithCancelCause(t.Context())
	l = NewLease(ctx, "x", nil)
	lose(ErrLost)
	wants(t, l.Err(), ErrLost)
	wants(t, l.Unlock(t.Context()), ErrNotHeld)
}

func TestDo(t *testing.T) {
	c := newClient(t)
	boom := errors.New("boom")
	wants(t, Do(t.Context(), c, "x", func(ctx context.Context) error {
		wants(t, errorOf(c.TryLock(t.Context(), "x")), ErrNotAcquired)
		return boom
	}), boom)
	func() {
		defer func() { recover() }()
		Do(t.Context(), c, "x", func(context.Context) error { panic("x") })
	}()
	wants(t, Do(t.Context(), c, "x", func(ctx context.Context) error {
		must(t, errorOf(c.ForceUnlock(context.Background(), "x")))
		wants(t, context.Cause(ctx), ErrLost)
		return nil
	}), ErrLost)
	ctx, cancel := context.WithCancel(t.Context())
	must(t, Do(ctx, c, "x", func(context.Context) error { cancel(); return nil }))
	l := need(c.TryLock(t.Context(), "x"))(t)
	must(t, l.Unlock(t.Context()))
}

func TestErrorOfABackendThatDoesNotOpen(t *testing.T) {
	_, err := New(refusing{})
	wants(t, err, ErrInvalid)
	wants(t, err, errRefused)
}

var errRefused = errors.New("the client is nil")

type refusing struct{}

func (refusing) Open(backend.Handler) (backend.Store, error) { return nil, errRefused }

func TestReentryIsForTheInnermostLeaseOnly(t *testing.T) {
	c := newClient(t)
	outer := need(c.Lock(t.Context(), "x"))(t)
	inner := need(c.Lock(outer.Context(), "x"))(t)
	wants(t, errorOf(c.TryLock(outer.Context(), "x")), ErrNotAcquired)
	turn := make(chan error, 1)
	go func() {
		l, err := c.Lock(outer.Context(), "x")
		if err == nil {
			err = l.Unlock(context.Background())
		}
		turn <- err
	}()
	must(t, inner.Unlock(t.Context()))
	must(t, <-turn)
	kept := context.WithoutCancel(outer.Context())
	must(t, outer.Unlock(t.Context()))
	other := need(c.TryLock(t.Context(), "x"))(t)
	wants(t, errorOf(c.TryLock(kept, "x")), ErrNotAcquired)
	must(t, other.Unlock(t.Context()))
}

func TestLeaseContextIsAChildYetDoesNotEndTheLease(t *testing.T) {
	c := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	l := need(c.Lock(ctx, "x"))(t)
	cancel()
	<-l.Context().Done()
	must(t, l.Err())
	wants(t, errorOf(c.TryLock(t.Context(), "x")), ErrNotAcquired)
	if err := l.Unlock(ctx); err != nil { // released all the same, whether its answer was waited for or not
		wants(t, err, context.Canceled)
	}
	m := need(c.Lock(t.Context(), "x"))(t)
	must(t, m.Unlock(t.Context()))
}

// A fake's context may be made under that of another lease. The end of that one is not
// the fake's, and does not hide what its own release came to.
func TestAStandInOutlivesTheLeaseThatItWasMadeUnder(t *testing.T) {
	c := on(t, memory.New())
	outer := need(c.Lock(t.Context(), "n"))(t)
	failure := errors.New("no release")
	l := NewLease(outer.Context(), "f", func(context.Context) error { return failure })
	must(t, outer.Unlock(t.Context()))
	if err := l.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	if err := l.Unlock(t.Context()); !errors.Is(err, failure) || errors.Is(err, ErrNotHeld) {
		t.Errorf("Unlock: %v", err)
	}
	if err := l.Err(); !errors.Is(err, ErrReleased) {
		t.Errorf("Err after Unlock: %v", err)
	}
}
