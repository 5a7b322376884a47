//go:build unix

package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// T is what helpers need of a test. A *testing.T, a *testing.B and a *rapid.T have it.
type T interface {
	Helper()
	Error(...any)
	Errorf(string, ...any)
	Fatal(...any)
	Fatalf(string, ...any)
}

// Must returns what a call returned, and ends the test if the call failed:
//
//	lease := harness.Must(locks.Lock(ctx, "orders:42"))(t)
func Must[V any](v V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// OK ends the test if err is not nil.
func OK(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// OKf is OK with what failed.
func OKf(t T, err error, what string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

// Check fails the test, which goes on, if err is not nil.
func Check(t T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Checkf is Check with what failed.
func Checkf(t T, err error, what string, args ...any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", fmt.Sprintf(what, args...), err)
	}
}

// CheckIs fails the test, which goes on, unless err is target.
func CheckIs(t T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v, want %v", err, target)
	}
}

// CheckIsf is CheckIs with what failed, or did not.
func CheckIsf(t T, err, target error, what string, args ...any) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(what, args...), err, target)
	}
}

// Err is the error of a call that also returns a value.
func Err[V any](_ V, err error) error { return err }

// Await polls until ok, and ends the test when that takes longer than d.
func Await(t T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	if !Awaits(d, ok) {
		t.Fatalf("not within %v: %s", d, what)
	}
}

// Awaits polls until ok, for d at most. It returns what ok said last.
func Awaits(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return ok()
		}
	}
	return true
}

// Receive returns what comes from ch, and ends the test when that takes longer than d.
func Receive[V any](t T, d time.Duration, what string, ch <-chan V) V {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case v := <-ch:
		return v
	case <-timer.C:
	}
	select {
	case v := <-ch: // it was there, and so was the end
		return v
	default:
	}
	t.Fatalf("not within %v: %s", d, what)
	panic("unreachable")
}

// Within is a context that ends a test which hangs.
func Within(t interface{ Cleanup(func()) }, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Workers runs f(0) to f(n-1) on a few goroutines, until one fails. It returns the first error.
func Workers(n, goroutines int, f func(i int) error) error {
	var next atomic.Int64
	var failure atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(goroutines, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failure.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					failure.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Silent is a logger for client libraries that tell each failed dial.
type Silent struct{}

// Printf does nothing.
func (Silent) Printf(context.Context, string, ...any) {}

// ErrorIf fails the test, which goes on, if something is wrong.
func ErrorIf(t T, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// FatalIf ends the test if something is wrong.
func FatalIf(t T, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}
