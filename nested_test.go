package mortise

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
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
	got := need(c.WithDelegations(context.Background(), Delegations(ctx)...))(t)
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
		if delegations := Delegations(above.lease.Context()); f.dice(3) > 0 {
			var err error
			if ctx, err = c.WithDelegations(ctx, delegations...); err != nil {
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
		for _, may := range []error{ErrNotAcquired, ErrDelegationEnded, ErrLost,
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

func (n *node) depth() (d int) {
	for ; n != nil; n = n.above {
		d++
	}
	return d
}

// delegations0 is the client whose hold the innermost delegation is about.
func delegations0(delegations []Delegation) string {
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
