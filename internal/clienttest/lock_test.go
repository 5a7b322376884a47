package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
)

func TestInvalidArgumentsAreRefusedWithARemedy(t *testing.T) {
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
		{"nil context", errorOf(c.Lock(nil, "x")), ErrInvalid, "context.Background"}, //nolint:staticcheck // the point
		{"nil backend", errorOf(New(nil)), ErrInvalid, "memory.New()"},
		{"empty id", errorOf(New(memory.New(), WithID(""))), ErrInvalid, "WithID"},
		{"short watchdog", errorOf(New(memory.New(), WithWatchdogTimeout(1))), ErrInvalid, "1s"},
		{"nil lease", (*Lease)(nil).Unlock(t.Context()), ErrInvalid, "nil"},
		{"nil Locker", Do(t.Context(), nil, "x", func(context.Context) error { return nil }), ErrInvalid, "nil"},
		{"inspect nothing", errorOf(c.Inspect(t.Context(), "")), ErrInvalidName, "empty"},
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
		must(t, thenUnlock(c.Lock(t.Context(), name)))
	}
}

func TestOptionsAreComparable(t *testing.T) {
	if WithWait(time.Second) != WithWait(time.Second) || WithLease(1) == WithWait(1) {
		t.Error("options do not compare")
	}
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
		must(t, errorOf(c.ForceUnlock(context.Background(), "x", "")))
		wants(t, context.Cause(ctx), ErrLost)
		return nil
	}), ErrLost)
	ctx, cancel := context.WithCancel(t.Context())
	must(t, Do(ctx, c, "x", func(context.Context) error { cancel(); return nil }))
	must(t, thenUnlock(c.TryLock(t.Context(), "x")))
}

func TestDoRunsNothingIfTheLockerReturnsNoLease(t *testing.T) {
	err := Do(t.Context(), empty{}, "x", func(context.Context) error {
		t.Error("the function ran without a lock")
		return nil
	})
	wants(t, err, ErrInvalid)
}

// Do reports a loss beside the error of fn.
func TestDoReportsALossBesideTheErrorOfTheFunction(t *testing.T) {
	errMine := errors.New("mine")
	for name, of := range map[string]func(ctx context.Context) error{
		"ctx.Err":  func(ctx context.Context) error { return ctx.Err() },
		"own":      func(context.Context) error { return errMine },
		"cause":    func(ctx context.Context) error { return context.Cause(ctx) },
		"wrapping": func(ctx context.Context) error { return fmt.Errorf("work: %w", context.Cause(ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				var fns error
				err := Do(t.Context(), open(), "x", func(ctx context.Context) error {
					<-ctx.Done()
					fns = of(ctx)
					return fns
				}, WithLease(time.Second))
				wants(t, err, ErrLost)
				wants(t, err, fns)
				if name == "cause" || name == "wrapping" {
					if err.Error() != fns.Error() {
						t.Errorf("the loss is told twice: %v", err)
					}
				}
			})
		})
	}
	c := newClient(t)
	if err := Do(t.Context(), c, "x", func(context.Context) error { return errMine }); err != errMine {
		t.Errorf("got %v, want fn's own error", err)
	}
}

// Do reports a loss that only Unlock finds.
func TestDoReportsALossThatUnlockFinds(t *testing.T) {
	errMine := errors.New("mine")
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		l := fakeLocker(func(ctx context.Context, name string) (*Lease, error) {
			return NewLease(ctx, name, 0, func(context.Context) error {
				return &Error{Op: "unlock", Name: name, Err: ErrLost}
			}), nil
		})
		err := Do(t.Context(), l, "x", func(context.Context) error { return errMine })
		wants(t, err, errMine)
		wants(t, err, ErrLost)
	})
}

// See rule 1 of package backendtest.
func TestAClientWithTheIDOfAnEarlierOneDoesNotHoldItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		before := on(t, st, WithID("pod-3"))
		must(t, errorOf(before.Lock(t.Context(), "x")))
		before.Shutdown(ended())
		time.Sleep(15 * time.Second)
		start := time.Now()
		after := on(t, st, WithID("pod-3"))
		must(t, errorOf(after.Lock(t.Context(), "x")))
		if d := time.Since(start); d < 14*time.Second {
			t.Errorf("locked after %v, while the lock of the one before was running out", d)
		}
	})
}

func TestForceUnlockEndsNoLeaseGrantedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		c := on(t, spyOn(st, "", hooks{"ForceRelease": func(c *call) error {
			err := c.run(context.Background())
			time.Sleep(time.Millisecond) // meanwhile the waiter has it
			return err
		}}))
		must(t, errorOf(on(t, st).Lock(t.Context(), "x")))
		got := queued(t.Context(), c, "x")
		must(t, errorOf(c.ForceUnlock(t.Context(), "x", "")))
		l := got.lease(t)
		time.Sleep(time.Second)
		must(t, l.Err())
	})
}

// The wait for a slot of the in-flight limiter was once part of the lease.
func TestALeaseCountsFromWhenItsRequestIsSentAndNotFromTheWaitForASlot(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var slow atomic.Bool
		slow.Store(true)
		c := on(t, spyOn(s, "", hooks{"Acquire": func(c *call) error {
			if slow.Load() {
				time.Sleep(2 * time.Second)
			}
			return c.run(context.Background())
		}}))
		for i := range 256 {
			go c.Lock(t.Context(), fmt.Sprint(i))
		}
		synctest.Wait()
		slow.Store(false)
		l := need(c.Lock(context.Background(), "x", WithLease(time.Second)))(t)
		must(t, l.Err())
	})
}

// Rule 11: a lost reply of an Unlock is no failure, also where it was awaited for as long as a client library waits.
// See rule 11 of package backendtest.
func TestAReleaseThatTimedOutIsRepeatedWhileTheCallerWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		n := 0
		c := on(t, spyOn(s, "", hooks{"Release": func(c *call) error {
			if n++; n == 1 {
				time.Sleep(3 * time.Second)
				return unknownOutcome()
			}
			return c.run(context.Background())
		}}))
		must(t, thenUnlock(c.Lock(t.Context(), "x")))
	})
}

// The first command on a connection that was closed meanwhile fails, and nothing tells whether the store has run it.
// ForceUnlock is repeated only if it was not sent.
func TestAClosedConnectionFailsNoCall(t *testing.T) {
	for op, send := range map[string]func(ctx context.Context, c *Client) error{
		"Latch.Count": func(ctx context.Context, c *Client) error { return latch.New(c, "l").Wait(ctx) },
		"Inspect": func(ctx context.Context, c *Client) error {
			info, err := c.Inspect(ctx, "x")
			if err == nil && !info.Held {
				err = errors.New("the lock is not held")
			}
			return err
		},
		"ForceRelease": func(ctx context.Context, c *Client) error {
			removed, err := c.ForceUnlock(ctx, "x", "")
			if err == nil && !removed {
				err = errors.New("nothing was removed")
			}
			return err
		},
	} {
		for what, first := range map[string]func(*call) error{
			"before the command": func(*call) error { return &backend.Fault{Err: errGone, Temporary: true} },
			"before the reply":   replyLost,
		} {
			t.Run(op+", "+what, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
					calls := 0
					c := on(t, spyOn(s, "CountDownLatches", hooks{op: func(c *call) error {
						if calls++; calls == 1 {
							return first(c)
						}
						return c.run(context.Background())
					}}))
					need(open().Lock(t.Context(), "x"))(t)
					err := send(t.Context(), c)
					if op != "ForceRelease" || what != "before the reply" {
						noError(t, err)
						return
					}
					wants(t, err, ErrUnavailable)
					if calls != 1 {
						t.Errorf("%d attempts: the second could remove the lock of the next owner", calls)
					}
				})
			})
		}
	}
}

// The store lets callers leave; its first request fails after its caller has left.
func TestAnAcquisitionWhoseCallerHasLeftIsNotRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		asked := 0
		c := on(t, spyOn(s, "Leaver Queue", hooks{"Acquire": func(c *call) error {
			if asked++; asked > 1 {
				return c.run(context.Background())
			}
			<-c.ctx.Done()
			return &backend.Left[backend.AcquireReply]{Wait: func() (backend.AcquireReply, error) {
				time.Sleep(time.Second)
				return backend.AcquireReply{}, &backend.Fault{Err: errGone, Temporary: true}
			}}
		}}))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wants(t, errorOf(c.Lock(ctx, "x")), context.DeadlineExceeded)
		time.Sleep(5 * time.Second)
		if asked != 1 {
			t.Errorf("the store was asked %d times", asked)
		}
	})
}
