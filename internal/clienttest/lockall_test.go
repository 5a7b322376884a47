package clienttest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/quorum"
)

// LockAll states how many parts it takes, and does not run into the caller's context with more.
func TestLockAllOfTooManyPartsIsInvalid(t *testing.T) {
	c, names := newClient(t), make([]string, 1001)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	for op, err := range map[string]error{
		"lockall":    errorOf(c.LockAll(t.Context(), names)),
		"trylockall": errorOf(c.TryLockAll(t.Context(), names)),
	} {
		var e *Error
		if !errors.As(err, &e) || e.Op != op || !errors.Is(err, ErrInvalid) ||
			!contains(err.Error(), "1001 parts; at most 1000") {
			t.Errorf("%s of %d parts: %v", op, len(names), err)
		}
	}
	must(t, thenUnlock(c.LockAll(t.Context(), names[:1000])))
}

func TestLockAllHoldsAllOrNone(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		all := need(a.LockAll(t.Context(), []string{"x", "y", "z"}))(t)
		for _, n := range []string{"x", "y", "z"} {
			wants(t, errorOf(b.TryLock(t.Context(), n)), ErrNotAcquired)
			must(t, thenUnlock(a.TryLock(all.Context(), n)))
		}
		wants(t, errorOf(b.LockAll(t.Context(), []string{"w", "z"}, WithWait(time.Second))), ErrNotAcquired)
		w := need(b.TryLock(t.Context(), "w"))(t)
		must(t, w.Unlock(t.Context()))
		must(t, all.Unlock(t.Context()))
		wants(t, all.Err(), ErrReleased)
		wants(t, context.Cause(all.Context()), ErrReleased)
		wants(t, all.Unlock(t.Context()), ErrReleased)
		must(t, thenUnlock(Parts{}.And(b, "w", "z").And(a, "x").Lock(t.Context())))
	})
}

func TestLockAllEndsWithItsFirstLostPart(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		all := need(a.LockAll(t.Context(), []string{"x", "y"}))(t)
		s.Delete("x")
		<-all.Context().Done()
		wants(t, context.Cause(all.Context()), ErrLost)
		wants(t, all.Err(), ErrLost)
		wants(t, errorOf(b.TryLock(t.Context(), "y")), ErrNotAcquired)
		wants(t, all.Unlock(t.Context()), ErrLost)
		must(t, thenUnlock(b.TryLock(t.Context(), "y")))
	})
}

// LockAll waits for stores that are new, wherever Quorum stands among the parts.
func TestLockAllWaitsForNewStoresOfAnyPart(t *testing.T) {
	for name, last := range map[string]bool{"first": false, "last": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				var clients []*Client
				for range 3 {
					store := memory.New()
					store.Flush()
					clients = append(clients, on(t, store))
				}
				defer func() {
					for _, c := range clients {
						c.Close()
					}
				}()
				quorum := need(quorum.New(clients...))(t)
				other := open()
				parts := Parts{}.And(quorum, "quorum").And(other, "a")
				if last {
					parts = Parts{}.And(other, "a").And(quorum, "quorum")
				}
				all, err := parts.Lock(t.Context(), WithWait(time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				must(t, all.Unlock(t.Context()))
			})
		})
	}
}

// wantCommands checks how many commands for several locks, and for one, were sent since the last check.
func wantCommands(t *testing.T, b *spy, what string, all, one int) {
	t.Helper()
	a, o := b.take("AcquireAll", "ReleaseAll"), b.take("Acquire", "Release", "Fair.Acquire", "Fair.Release")
	if a != all || o != one {
		t.Errorf("%s: %d commands for several locks and %d for one, want %d and %d", what, a, o, all, one)
	}
}

func TestLockAllTakesWhatItCanInOneCommand(t *testing.T) {
	b := spyOn(memory.New(), "Batch Fair", nil)
	c := on(t, b)
	other := on(t, b)
	fenced := c.With(Fenced(), NonReentrant())
	fair := c.With(Fair())
	ctx := t.Context()
	for _, x := range []struct {
		what     string
		parts    Parts
		all, one int
	}{
		{"one part", Parts{}.And(c, "x"), 0, 1},
		{"five", Parts{}.And(c, "a", "b", "c", "d", "e"), 1, 0},
		{"with a fenced one", Parts{}.And(c, "a", "b").And(fenced, "f"), 1, 0},
		{"two clients", Parts{}.And(c, "a", "b").And(other, "c", "d"), 2, 0},
		{"two clients in turn", Parts{}.And(c, "a").And(other, "c").And(c, "b").And(other, "d"), 2, 0},
		{"with a fair one", Parts{}.And(c, "a", "b").And(fair, "g"), 1, 1},
		{"a wrapper", Parts{}.And(c, "a", "b").And(wrapper{c}, "h"), 1, 1},
	} {
		l := need(Parts(x.parts).Lock(ctx))(t)
		wantCommands(t, b, x.what+", LockAll", x.all, x.one)
		must(t, l.Err())
		must(t, l.Unlock(ctx))
		switch x.what {
		case "a wrapper": // its lease is the client's own, and joins the batch
			wantCommands(t, b, x.what+", Unlock", 1, 0)
		default:
			wantCommands(t, b, x.what+", Unlock", x.all, x.one)
		}
	}
	var many Parts
	for i := range 600 {
		many = many.And(c, fmt.Sprint(i))
	}
	l := need(many.Lock(ctx))(t)
	wantCommands(t, b, "600", 3, 0)
	must(t, l.Unlock(ctx))
	wantCommands(t, b, "600, Unlock", 1, 0) // the session splits it
	l = need(Parts{}.And(c, "a").And(fenced, "f").Lock(ctx))(t)
	wantCommands(t, b, "a fenced one", 1, 0)
	reentrant := c.With(Fenced())
	inner := need(reentrant.TryLock(l.Context(), "f"))(t)
	if token := inner.Token(); token <= 0 {
		t.Errorf("the token is %d", token)
	}
	wants(t, errorOf(Parts{}.And(fenced, "f").And(c, "z").Lock(l.Context())), ErrInvalid)
	must(t, inner.Unlock(ctx))
	must(t, l.Unlock(ctx))
	l, err := c.TryLock(ctx, "z") // which was released
	must(t, err)
	must(t, l.Unlock(ctx))
}

// wrapper is a Locker that an application wrote.
type wrapper struct{ Locker }

// step is a Locker whose every call takes a millisecond, as over a network.
type step struct{ l Locker }

func (s step) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	l, err := s.l.Lock(ctx, name, opts...)
	time.Sleep(time.Millisecond)
	return l, err
}

func (s step) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	l, err := s.l.TryLock(ctx, name, opts...)
	time.Sleep(time.Millisecond)
	return l, err
}

// Two calls that want the same parts in opposite order, at the same pace, could refuse each other for ever.
func TestLockAllsInOppositeOrderMakeProgress(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		for range 20 {
			var wg sync.WaitGroup
			for i := range 2 {
				c := open()
				wg.Go(func() {
					order := []string{"a", "b"}
					if i == 1 {
						slices.Reverse(order)
					}
					noError(t, thenUnlock(Parts{}.And(step{c}, order...).Lock(t.Context(), WithWait(time.Minute))))
				})
			}
			wg.Wait()
		}
	})
}

func TestLockAllWithWaitBoundsTheWhole(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		// A call for either finds the other held: a name in parts of two clients of one store.
		start := time.Now()
		_, err := Parts{}.And(a, "x").And(b, "x").Lock(t.Context(), WithWait(time.Second))
		wants(t, err, ErrNotAcquired)
		if d := time.Since(start); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		var e *Error
		if !errors.As(err, &e) || e.Name != "x" {
			t.Errorf("%v names no part", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wants(t, errorOf(Parts{}.And(a, "x").And(b, "x").Lock(ctx)), context.DeadlineExceeded)
		l := need(a.LockAll(t.Context(), []string{"w", "x"}))(t)
		start = time.Now()
		wants(t, errorOf(b.LockAll(t.Context(), []string{"x", "y"}, WithWait(time.Second))), ErrNotAcquired)
		if d := time.Since(start); d < 900*time.Millisecond || d > 1100*time.Millisecond {
			t.Errorf("it took %v", d)
		}
		must(t, l.Unlock(t.Context()))
	})
}

func TestLockAllWaitsForTheHeldPartsInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		held := make(map[string]*Lease)
		for _, n := range []string{"x", "y", "z"} {
			l := need(a.Lock(t.Context(), n))(t)
			held[n] = l
		}
		got := make(chan *Lease)
		for _, c := range []*Client{a, b} {
			go func() {
				l, err := c.LockAll(t.Context(), []string{"y", "x", "z"})
				noError(t, err)
				got <- l
			}()
		}
		for _, n := range []string{"z", "y", "x"} {
			synctest.Wait()
			select {
			case <-got:
				t.Fatal("granted while parts are held")
			default:
			}
			must(t, held[n].Unlock(t.Context()))
		}
		for range 2 {
			l := <-got
			must(t, l.Err())
			must(t, l.Unlock(t.Context()))
		}
	})
}

func TestLockAllRefusesInvalidParts(t *testing.T) {
	b := spyOn(memory.New(), "Batch Fair", nil)
	c := on(t, b)
	ctx := t.Context()
	//lint:ignore SA1012 it is what is tested
	wants(t, errorOf(c.LockAll(nil, []string{"x"})), ErrInvalid)
	for what, p := range map[string]Parts{
		"no parts":             {},
		"a nil Locker alone":   Parts{}.And(nil, "x"),
		"a nil Locker":         Parts{}.And(c, "x", "y").And(nil, "z"),
		"a nil client":         Parts{}.And(c, "x", "y").And((*Client)(nil), "z"),
		"of a nil client":      Parts{}.And(c, "x", "y").And((*Client)(nil).With(Fenced()), "z"),
		"one that returns nil": Parts{}.And(c, "x", "y").And(empty{}, "z"),
		"it, first":            Parts{}.And(empty{}, "z").And(c, "x", "y"),
	} {
		if _, err := p.Lock(ctx); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, opts := range map[string][]Option{
		"a wait of zero": {WithWait(0)},
		"a wait below 0": {WithWait(-1)},
		"a short lease":  {WithLease(time.Millisecond)},
		"both bounds":    {WithLease(time.Minute), WithMaxHold(time.Minute)},
	} {
		_, err := c.LockAll(ctx, []string{"x", "y"}, opts...)
		var e *Error
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &e) || e.Op != "lockall" {
			t.Errorf("%s: %v", what, err)
		}
	}
	wants(t, errorOf(c.LockAll(ctx, []string{"x", "}"})), ErrInvalidName)
	wants(t, errorOf(c.LockAll(ctx, []string{"x", ""})), ErrInvalidName)
	must(t, thenUnlock(c.LockAll(ctx, []string{"x", "y", "z"})))
}

// empty returns neither a lease nor an error, as a mock does that was told nothing.
type empty struct{}

func (empty) Lock(context.Context, string, ...Option) (*Lease, error) { return nil, nil }

func (empty) TryLock(context.Context, string, ...Option) (*Lease, error) { return new(Lease), nil }

func TestLockAllReportsAPartLostBeforeTheOthersWereAcquired(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		slow := hook{wrapper{c}, func() { time.Sleep(time.Second) }}
		_, err := Parts{}.And(c, "x", "y").And(slow, "z").Lock(t.Context(), WithLease(100*time.Millisecond))
		wants(t, err, ErrUnavailable)
		wants(t, err, ErrLost)
		for _, n := range []string{"x", "y", "z"} {
			must(t, thenUnlock(c.TryLock(t.Context(), n)))
		}
	})
}

func TestLockAllUnlockReleasesTheOtherPartsWhenSomeFail(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		all := need(c.LockAll(t.Context(), []string{"x", "y", "z"}, WithLease(time.Hour)))(t)
		s.Occupy("x")
		s.Delete("z")
		wants(t, all.Unlock(t.Context()), ErrLost)
		must(t, thenUnlock(c.TryLock(t.Context(), "y")))
		wants(t, errorOf(c.TryLock(t.Context(), "x")), ErrWrongKind)
	})
}

func TestLockAllIsSeenByTheObserver(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var mu sync.Mutex
		seen := make(map[string]int)
		note := func(what string) { mu.Lock(); seen[what]++; mu.Unlock() }
		c := open(WithObserver(Observer{
			Waiting:     func(e Event) { note("waiting " + e.Name) },
			Acquired:    func(e Event) { note("acquired " + e.Name) },
			Released:    func(e Event) { note("released " + e.Name) },
			NotAcquired: func(e Event) { note("not " + e.Name) },
		}))
		l := need(c.LockAll(t.Context(), []string{"x", "y"}))(t)
		wants(t, errorOf(c.LockAll(t.Context(), []string{"w", "y"}, WithWait(time.Second))), ErrNotAcquired)
		must(t, l.Unlock(t.Context()))
		mu.Lock()
		defer mu.Unlock()
		// The second call has w, and waits for y: with w for a moment, and then without.
		want := map[string]int{
			"acquired x": 1, "acquired y": 1, "released x": 1, "released y": 1,
			"acquired w": 1, "released w": 1, "waiting y": 2, "not y": 2,
		}
		if !maps.Equal(seen, want) {
			t.Errorf("seen %v, want %v", seen, want)
		}
	})
}

func TestLockAllOfEveryKindOfLocker(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := open(), open()
		ctx := t.Context()
		fair := c.With(Fair())
		polling := c.With(Polling(time.Millisecond))
		fenced := c.With(Fenced())
		read, write := c.RW().Read, c.RW().Write
		var stores []*Client
		for range 3 {
			s := on(t, memory.New())
			stores = append(stores, s)
		}
		quorum := need(quorum.New(stores...))(t)
		type one struct {
			Locker
			name string
		}
		p := []one{
			{c, "plain"}, {fair, "fair"}, {polling, "polling"}, {fenced, "fenced"}, {quorum, "quorum"}, {read, "read"},
			{write, "write"}, {other, "other"}, {c, "plain too"}, {fair, "plain"},
		}
		for first := range p {
			var parts Parts
			for _, x := range slices.Concat(p[first:], p[:first]) {
				parts = parts.And(x.Locker, x.name)
			}
			all := need(parts.Lock(ctx, WithWait(time.Minute)))(t)
			must(t, all.Err())
			for _, x := range p {
				if x.Locker == read || x.Locker == quorum {
					continue
				}
				wants(t, errorOf(wrapper{x.Locker}.TryLock(ctx, x.name)), ErrNotAcquired)
			}
			must(t, thenUnlock(polling.TryLock(all.Context(), "polling")))
			must(t, thenUnlock(read.TryLock(all.Context(), "write")))
			must(t, all.Unlock(ctx))
			for _, x := range p {
				must(t, thenUnlock(x.TryLock(ctx, x.name)))
			}
		}
	})
}

func TestLockAllUnlockDoesNotDelayPartsForOneThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, spyOn(memory.New(), "Batch Fair", hooks{"ReleaseAll": func(c *call) error {
			if c.request.(backend.ReleaseRequest).Name == "b" {
				return &backend.Fault{Err: errGone, Temporary: true}
			}
			return c.run(c.ctx)
		}}))
		all := need(c.LockAll(context.Background(), []string{"a", "b", "c"}))(t)
		began := time.Now()
		var took [2]time.Duration
		var wg sync.WaitGroup
		for i, name := range []string{"a", "c"} {
			wg.Go(func() {
				l, err := c.Lock(context.Background(), name)
				took[i] = time.Since(began)
				if err == nil {
					err = l.Unlock(context.Background())
				}
				noError(t, err)
			})
		}
		synctest.Wait()
		if err := all.Unlock(context.Background()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Unlock: %v", err)
		}
		wg.Wait()
		if took != [2]time.Duration{} {
			t.Errorf("they were had after %v", took)
		}
	})
}

// On a cluster the names are on several nodes. While one of them hangs, waiters for the names of the others go on.
func TestLockAllUnlockDoesNotDelayPartsForANodeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hangs = 5 * time.Second
		slow := func(c *call) error {
			if c.request.(backend.ReleaseRequest).Name[0] == 'b' {
				time.Sleep(hangs)
			}
			return c.run(context.Background())
		}
		b := spyOn(memory.New(), "Batch Queue Partitions", hooks{"ReleaseAll": slow, "Release": slow})
		c := on(t, b)
		all := need(c.LockAll(t.Context(), []string{"a1", "a2", "b1", "b2"}))(t)
		waiting := queued(t.Context(), c, "a1")
		began := time.Now()
		unlocked := later(func() error { return all.Unlock(context.Background()) })
		l := waiting.lease(t)
		if took := time.Since(began); took != 0 {
			t.Errorf("the waiter has the lock after %v", took)
		}
		must(t, l.Unlock(t.Context()))
		must(t, <-unlocked)
		if took := time.Since(began); took < hangs {
			t.Errorf("Unlock returned after %v, before the hanging node answered", took)
		}
	})
}

// A part with a short lease is released before it runs out, and taken again.
func TestLockAllWithAShortLeaseWaitsForAHeldPart(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := open(), open()
		b := need(other.Lock(t.Context(), "b"))(t)
		err := later(func() error {
			return thenUnlock(c.LockAll(t.Context(), []string{"a", "b"}, WithLease(100*time.Millisecond)))
		})
		synctest.Wait()
		time.Sleep(200 * time.Millisecond)
		must(t, b.Unlock(t.Context()))
		must(t, <-err)
		must(t, thenUnlock(other.TryLockAll(t.Context(), []string{"a", "b"})))
	})
}

func TestLockAllEndsWhenAPartIsLostWhileItWaitsForAnother(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := open(), open()
		b := need(other.Lock(t.Context(), "b"))(t)
		got := later(func() answer {
			l, err := c.LockAll(t.Context(), []string{"a", "b"})
			return answer{l, err}
		})
		synctest.Wait()
		time.Sleep(50 * time.Millisecond)
		need(c.ForceUnlock(t.Context(), "a", ""))(t)
		rival := need(other.TryLock(t.Context(), "a"))(t)
		time.Sleep(50 * time.Millisecond)
		x := <-got
		wants(t, x.err, ErrUnavailable)
		must(t, b.Unlock(t.Context()))
		must(t, rival.Unlock(t.Context()))
	})
}

// The first part is lost at the moment at which the second is released: for the race detector.
func TestAPartOfLockAllThatEndsAsTheNextIsAcquired(t *testing.T) {
	for range 100 {
		bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
			c, other := open(), need(open().Lock(t.Context(), "b"))(t)
			lost := later(func() error {
				time.Sleep(MinLease)
				return errorOf(c.ForceUnlock(context.Background(), "a", ""))
			})
			unlocked := later(func() error {
				time.Sleep(MinLease)
				return other.Unlock(context.Background())
			})
			l, err := c.LockAll(t.Context(), []string{"a", "b"})
			if err == nil {
				err = l.Unlock(t.Context())
			}
			if err != nil && !errors.Is(err, ErrLost) {
				t.Error(err)
			}
			noError(t, <-lost)
			noError(t, <-unlocked)
		})
	}
}

func TestLockAllACallerThatLeavesDoesNotWaitForAQuorumThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // what hangs
		var clients []*Client
		for range 3 {
			b := unaware(memory.New())
			clients = append(clients, on(t, b))
			b.hook("Release", delayed(10*time.Second))
		}
		quorum := need(quorum.New(clients...))(t)
		c := newClient(t)
		must(t, errorOf(c.Lock(t.Context(), "y")))
		ctx, leave := context.WithCancel(t.Context())
		start := time.Now()
		w := later(func() error { return errorOf(Parts{}.And(quorum, "x").And(c, "y").Lock(ctx)) })
		time.Sleep(10 * time.Millisecond)
		leave()
		wants(t, <-w, context.Canceled)
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("the caller left after 10ms and is told after %v", took)
		}
	})
}

func TestLockAllDoesNotWaitForAReleaseThatHangsOnceItsWaitIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // what hangs
		b := spyOn(memory.New(), "", hooks{"Release": delayed(10 * time.Second)})
		c, other := on(t, b), newClient(t)
		must(t, errorOf(other.Lock(t.Context(), "y")))
		start := time.Now()
		_, err := Parts{}.And(c, "x").And(other, "y").Lock(t.Context(), WithWait(100*time.Millisecond))
		wants(t, err, ErrNotAcquired)
		if took := time.Since(start); took > 150*time.Millisecond {
			t.Errorf("with a wait of 100ms: %v", took)
		}
	})
}

func TestTryLockAllNamesItselfWhenAPartIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		late := hook{c, func() { time.Sleep(time.Minute) }}
		_, err := Parts{}.And(c, "a").And(late, "b").TryLock(t.Context(), WithLease(time.Second))
		wants(t, err, ErrUnavailable)
		wants(t, err, ErrLost)
		if e := new(*Error); !errors.As(err, e) || (*e).Op != "trylockall" {
			t.Errorf("the operation is not TryLockAll: %v", err)
		}
	})
}

// The text of a part goes with the last lease of its owner, before the release, so followers learn of it at once.
func TestLockAllUnlockRemovesTheTextOfAPart(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		text := follow(t, open(), "a")
		all := need(c.LockAll(t.Context(), []string{"a", "b"}))(t)
		inner := need(c.Lock(all.Context(), "a"))(t)
		must(t, leader.Proclaim(t.Context(), inner, "me"))
		must(t, inner.Unlock(t.Context()))
		synctest.Wait()
		if got := text(); got != "me" {
			t.Errorf("while the parts are held the text is %q", got)
		}
		must(t, all.Unlock(t.Context()))
		synctest.Wait()
		if got := text(); got != "" {
			t.Errorf("after the Unlock the text is %q", got)
		}
	})
}
