package clienttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// pair is a caller's client and a callee's on one store.
func pair(t *testing.T) (store *memory.Store, a, b *Client) {
	t.Helper()
	store = memory.New()
	return store, on(t, store), on(t, store)
}

// called is the context of a call made under ctx, where it arrives at c.
func called(t *testing.T, c *Client, ctx context.Context) context.Context {
	t.Helper()
	got := need(delegation.NewContext(context.Background(), c, delegation.FromContext(ctx)...))(t)
	return got
}

func lock(t *testing.T, l Locker, ctx context.Context, name string, opts ...Option) *Lease {
	t.Helper()
	lease := need(l.Lock(ctx, name, append([]Option{WithWait(5 * time.Second)}, opts...)...))(t)
	return lease
}

func unlock(t *testing.T, l *Lease) {
	t.Helper()
	must(t, l.Unlock(context.Background()))
}

func TestACalleeEntersItsCallersLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		ctx := context.Background()
		outer := lock(t, a, ctx, "n")
		inner := lock(t, b, called(t, b, outer.Context()), "n")
		if _, err := b.TryLock(ctx, "n"); !errors.Is(err, ErrNotAcquired) {
			t.Errorf("a competitor: %v", err)
		}
		if _, err := b.TryLock(called(t, b, outer.Context()), "n"); !errors.Is(err, ErrNotAcquired) {
			t.Errorf("a second callee: %v", err)
		}
		if _, err := a.TryLock(outer.Context(), "n"); !errors.Is(err, ErrNotAcquired) {
			t.Errorf("the caller itself: %v", err)
		}
		back := lock(t, a, called(t, a, inner.Context()), "n") // A -> B -> A
		again := lock(t, a, back.Context(), "n")
		unlock(t, again)
		unlock(t, back)
		unlock(t, inner)
		self := lock(t, a, outer.Context(), "n")
		unlock(t, self)
		unlock(t, outer)
		unlock(t, lock(t, b, ctx, "n"))
	})
}

// node is one hold in a tree of calls.
type node struct {
	above *node
	lease *Lease
}

func (n *node) under(x *node) bool {
	for ; n != nil; n = n.above {
		if n == x {
			return true
		}
	}
	return false
}

func (n *node) depth() (d int) {
	for ; n != nil; n = n.above {
		d++
	}
	return d
}

// forest is calls that call others, in several processes, at random.
type forest struct {
	t       *testing.T
	clients []*Client
	mu      sync.Mutex
	rand    *rand.Rand
	held    map[*node]bool
	grants  int
	nested  int
	calls   sync.WaitGroup
}

func (f *forest) dice(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rand.IntN(n)
}

func (f *forest) pause() { time.Sleep(time.Duration(f.dice(40_000)) * time.Microsecond) }

// call locks in a process, under the hold above, if there is one; calls others meanwhile, and goes, or dies,
// before or after they have come back.
func (f *forest) call(above *node, depth int) {
	c := f.clients[f.dice(len(f.clients))]
	ctx := context.Background()
	if above != nil {
		if delegations := delegation.FromContext(above.lease.Context()); f.dice(3) > 0 {
			var err error
			if ctx, err = delegation.NewContext(ctx, c, delegations...); err != nil {
				f.t.Errorf("WithDelegations: %v", err)
				return
			}
			if len(delegations) == 0 {
				above = nil // it has ended: a competitor
			}
		} else {
			ctx = context.WithoutCancel(above.lease.Context())
			if above.lease.Err() != nil {
				return // as a competitor, or not: by when it ended
			}
			c = nil
			for _, x := range f.clients {
				if x.ID() == delegations0(delegations) {
					c = x
				}
			}
			if c == nil {
				return
			}
		}
	}
	opts := []Option{WithWait(time.Duration(1+f.dice(4000)) * time.Millisecond)}
	dies := f.dice(8) == 0
	if dies || f.dice(3) == 0 {
		opts = append(opts, WithLease(time.Duration(60+f.dice(200))*time.Millisecond))
	}
	lease, err := c.Lock(ctx, "n", opts...)
	if err != nil {
		for _, may := range []error{ErrNotAcquired, delegation.ErrEnded, ErrLost,
			ErrUnavailable} {
			if errors.Is(err, may) {
				return
			}
		}
		f.t.Errorf("Lock: %v", err)
		return
	}
	n := &node{above: above, lease: lease}
	f.mu.Lock()
	f.grants++
	if above != nil {
		f.nested++
	}
	for x := range f.held {
		if x.lease.Err() == nil && lease.Err() == nil && !n.under(x) {
			f.t.Errorf("two are in, and neither called the other: %d and %d levels deep", n.depth(), x.depth())
		}
	}
	f.held[n] = true
	f.mu.Unlock()
	f.pause()
	for range f.dice(4 - min(depth, 3)) {
		f.calls.Go(func() { f.call(n, depth+1) })
		if f.dice(2) == 0 {
			f.pause()
		}
	}
	f.pause()
	if !dies {
		err := lease.Unlock(context.Background())
		if err != nil && !errors.Is(err, ErrLost) {
			f.t.Errorf("Unlock: %v", err)
		}
	}
}

// delegations0 is the client whose hold the innermost delegation is about.
func delegations0(delegations []delegation.Delegation) string {
	if len(delegations) == 0 {
		return ""
	}
	return delegations[0].Owner[:strings.LastIndexByte(delegations[0].Owner, ':')]
}

func TestRandomCallersAndCalleesExcludeEachOther(t *testing.T) {
	grants, nested := 0, 0
	for range 20 {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			f := &forest{t: t, rand: rand.New(rand.NewPCG(seed, 0)), held: make(map[*node]bool)}
			for range 3 {
				f.clients = append(f.clients, on(t, store, WithWatchdogTimeout(time.Second)))
			}
			for range 40 {
				f.calls.Go(func() { f.pause(); f.pause(); f.call(nil, 0) })
			}
			f.calls.Wait()
			unlock(t, lock(t, f.clients[0], context.Background(), "n")) // nothing is left behind
			grants, nested = grants+f.grants, nested+f.nested
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
	t.Logf("%d grants, %d of them under another", grants, nested)
	if nested < 100 {
		t.Errorf("%d grants, %d of them under another: nothing was tried", grants, nested)
	}
}

// A client keeps nothing of a tenure that entered under another and has ended.
func TestEnteringLeavesNothingInTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		open := func() *Client {
			c := on(t, store)
			t.Cleanup(func() { c.Close() })
			return c
		}
		a, b := open(), open()
		ctx := context.Background()
		for _, end := range []func(*Lease){
			func(l *Lease) { l.Unlock(ctx) },
			func(l *Lease) { time.Sleep(time.Minute) }, // its lease runs out
		} {
			outer := need(a.Lock(ctx, "n"))(t)
			called := need(delegation.NewContext(ctx, b, delegation.FromContext(outer.Context())...))(t)
			inner := need(b.Lock(called, "n", WithLease(time.Second)))(t)
			if _, err := b.Lock(called, "n", WithWait(time.Millisecond)); err == nil {
				t.Fatal("two callees are in")
			}
			end(inner)
			must(t, outer.Unlock(ctx))
			time.Sleep(2 * time.Second)
			for _, c := range []*Client{a, b} {
				if s := engineOf(c).Probe().Snapshot(); s.Nested+s.Names+s.Watches+s.Held != 0 {
					t.Errorf("left: %+v", s)
				}
			}
		}
	})
}

// What a review of delegations, of contexts that are made late, and of requests that had to wait found.

func TestADelegationOnAHoldThatHasEndedFitsNoOtherHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		ctx := context.Background()
		outer := need(a.Lock(ctx, "n"))(t)
		inner := need(a.Lock(context.WithoutCancel(outer.Context()), "n"))(t)
		ofOuter, ofInner := delegation.FromContext(outer.Context()), delegation.FromContext(inner.Context())
		must(t, outer.Unlock(ctx)) // the outer hold first
		under := need(delegation.NewContext(ctx, b, ofOuter...))(t)
		if l, err := b.TryLock(under, "n"); err == nil {
			t.Error("entered under a hold that has ended, beside one that lives")
			must(t, l.Unlock(ctx))
		}
		under = need(delegation.NewContext(ctx, b, ofInner...))(t)
		must(t, thenUnlock(b.TryLock(under, "n")))
		must(t, inner.Unlock(ctx))
		wants(t, errorOf(b.Lock(under, "n")), delegation.ErrEnded)
		must(t, thenUnlock(b.TryLock(ctx, "n")))
	})
}

func TestAHoldThatEndedByWithMaxHoldBlocksNoCallee(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run("lent "+when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b := pair(t)
				ctx := context.Background()
				outer := need(a.Lock(ctx, "n"))(t)
				inner := need(a.Lock(outer.Context(), "n", WithMaxHold(time.Second)))(t)
				if when == "before" {
					delegation.FromContext(inner.Context())
				}
				time.Sleep(2 * time.Second)
				wants(t, inner.Err(), ErrLost)
				under := need(delegation.NewContext(ctx, b, delegation.FromContext(outer.Context())...))(t)
				must(t, thenUnlock(b.Lock(under, "n", WithWait(time.Minute))))
				must(t, thenUnlock(a.Lock(outer.Context(), "n", WithWait(time.Minute))))
				must(t, outer.Unlock(ctx))
			})
		})
	}
}

// A context descends from a lease also where an inner lease of the same lock has ended.
func TestALeaseBehindAnEndedInnerOneIsDelegated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		outer := lock(t, a, t.Context(), "n")
		inner := lock(t, a, outer.Context(), "n")
		ctx := inner.Context()
		unlock(t, inner)
		given := delegation.FromContext(outer.Context())
		if got := delegation.FromContext(ctx); len(given) != 1 || !slices.Equal(got, given) {
			t.Errorf("behind a re-entry that was unlocked: %v, want that of the outer lease, %v", got, given)
		}
		carried := called(t, b, outer.Context())
		entered := lock(t, b, carried, "n", WithMaxHold(time.Second))
		ctx = entered.Context()
		time.Sleep(2 * time.Second)
		wants(t, entered.Err(), ErrLost)
		if got := delegation.FromContext(ctx); !slices.Equal(got, given) {
			t.Errorf("behind a lease under a delegation that ended: %v, want the delegation, %v", got, given)
		}
		unlock(t, outer)
	})
}

// A request that sets the hold count is lost, and repeated, and arrives after a later re-entry: the count in the store
// is too low. A delegation of the inner hold would then fit no hold, and the lock would be taken for lost.
func TestALateCountLosesNoLock(t *testing.T) {
	for what, enterAndLeave := range map[string]func(c *Client, one *Lease) error{
		"an Unlock": func(c *Client, one *Lease) error { return thenUnlock(c.Lock(one.Context(), "x")) },
		"the undoing of a re-entry": func(c *Client, one *Lease) error {
			err := errorOf(c.Lock(one.Context(), "x", WithReplicas(1, time.Second))) // the store has none
			if errors.Is(err, ErrNotReplicated) {
				err = nil
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				n := 0
				c := on(t, spyOn(s, "Delegation Replicas", hooks{"Release": func(c *call) error {
					if n++; n == 1 {
						go func() { time.Sleep(time.Second); _ = c.run(context.Background()) }()
						return unknownOutcome()
					}
					return c.run(context.Background())
				}}))
				one := need(c.Lock(t.Context(), "x"))(t)
				must(t, enterAndLeave(c, one))
				two := need(c.Lock(one.Context(), "x"))(t)
				time.Sleep(2 * time.Second)
				if holds, _ := held(t, c); holds != 1 {
					t.Fatalf("the store has %d holds", holds)
				}
				if n := len(delegation.FromContext(two.Context())); n > 0 {
					t.Errorf("%d delegations of the inner hold", n)
				}
				must(t, thenUnlock(c.Lock(two.Context(), "x", WithWait(time.Second))))
				must(t, errors.Join(two.Err(), two.Unlock(t.Context())))
				callee := open()
				must(t, thenUnlock(callee.Lock(called(t, callee, one.Context()), "x", WithWait(time.Second))))
				must(t, one.Unlock(t.Context()))
			})
		})
	}
}

// A call under the outer hold, which waits for the end of the inner one, keeps no call under the inner hold out.
func TestACallUnderTheInnerHoldIsNotBehindOneUnderTheOuter(t *testing.T) {
	for what, opts := range map[string][]Option{"a release wakes it": nil, "it polls": {Polling(time.Minute)}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b := pair(t)
				for _, c := range []*Client{a, b} { // a re-entry in the process, and a call from another
					outer := need(a.Lock(t.Context(), "n"))(t)
					inner := need(a.Lock(outer.Context(), "n"))(t)
					ofOuter, ofInner := called(t, c, outer.Context()), called(t, c, inner.Context())
					waits := queued(ofOuter, c.With(opts...), "n")
					began := time.Now()
					unlock(t, need(c.Lock(ofInner, "n", WithWait(time.Minute)))(t))
					if d := time.Since(began); d > 0 {
						t.Errorf("a call under the innermost hold came in after %v", d)
					}
					unlock(t, inner)
					unlock(t, waits.lease(t))
					unlock(t, outer)
				}
			})
		})
	}
}

func TestForceUnlockEndsTheWaitOfCallees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := pair(t)
		c := on(t, s)
		ctx := context.Background()
		l := need(a.Lock(ctx, "n"))(t)
		delegations := delegation.FromContext(l.Context())
		entered := need(delegation.NewContext(ctx, b, delegations...))(t)
		callee := need(b.Lock(entered, "n"))(t)
		waits := need(delegation.NewContext(ctx, c, delegations...))(t)
		done := later(func() error { return errorOf(c.Lock(waits, "n")) })
		synctest.Wait()
		began := time.Now()
		must(t, errorOf(b.ForceUnlock(ctx, "n", "")))
		wants(t, <-done, delegation.ErrEnded)
		if d := time.Since(began); d > 0 {
			t.Errorf("it heard of it after %v", d)
		}
		wants(t, callee.Err(), ErrLost) // being of the client that removed it
	})
}

// A SetHolds that is lost, and repeated, arrives after the third hold began. It must not make a delegation of the
// second hold good.
func TestALateCountLetsNoCalleeInBesideAnInnerHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		n := 0
		c := on(t, spyOn(s, "Delegation", hooks{"SetHolds": func(c *call) error {
			if n++; n == 1 {
				go func() { time.Sleep(time.Second); _ = c.run(context.Background()) }()
				return unknownOutcome()
			}
			return c.run(context.Background())
		}}))
		callee := open()
		one := need(c.Lock(t.Context(), "x"))(t)
		two := need(c.Lock(one.Context(), "x"))(t)
		three := need(c.Lock(two.Context(), "x"))(t)
		time.Sleep(2 * time.Second)
		ctx := need(delegation.NewContext(t.Context(), callee, delegation.FromContext(two.Context())...))(t)
		l, err := callee.Lock(ctx, "x", WithWait(time.Second))
		if err == nil && three.Err() == nil && l.Err() == nil {
			t.Error("a callee of the second hold is in, and so is the third hold")
		}
	})
}
