package clienttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// changes counts the commands that change a lock, since the last count.
func changes(s *spy) int { return s.take("Acquire", "Serve", "Release", "SetHolds") }

// counter returns a client and the spy that counts its commands.
func counter(t *testing.T, opts ...ClientOption) (*Client, *spy) {
	t.Helper()
	s := spyOn(memory.New(), "Queue", nil)
	return on(t, s, opts...), s
}

func TestALockIsHandedOffWithoutACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := counter(t)
		other := on(t, s.Store)
		lease := need(c.Lock(t.Context(), "n"))(t)
		const n = 3 * 32
		var waiting []waiter
		for range n {
			waiting = append(waiting, queued(t.Context(), c, "n"))
		}
		changes(s)
		for i, w := range waiting {
			before := lease.Context()
			must(t, lease.Unlock(t.Context()))
			next := w.lease(t)
			if before.Err() == nil || !errors.Is(lease.Err(), ErrReleased) {
				t.Fatalf("%d holds while its predecessor's lease has not ended: %v", i, lease.Err())
			}
			must(t, next.Err())
			if _, err := other.TryLock(t.Context(), "n"); !errors.Is(err, ErrNotAcquired) {
				t.Fatalf("another client, while %d holds: %v", i, err)
			}
			if err := lease.Unlock(t.Context()); !errors.Is(err, ErrReleased) {
				t.Fatalf("a second Unlock: %v", err)
			}
			must(t, next.Err())
			lease = next
		}
		// The first tenure began without waiters and is handed off once. Each later tenure is handed off once a
		// waiter, 32 times at most.
		if sent, want := changes(s), (n-1+32)/(32+1); sent != want {
			t.Errorf("%d commands for %d handoffs, want %d", sent, n, want)
		}
		must(t, lease.Unlock(t.Context()))
		if sent := changes(s); sent != 1 {
			t.Errorf("%d commands for the last release, want 1", sent)
		}
		must(t, thenUnlock(other.TryLock(t.Context(), "n")))
	})
}

// While nothing else waits a client's turn goes on; a waiter of another client then has the lock at the next release.
// The turn that follows that is a whole one.
func TestATurnThatWentOnIsOverWhenAnotherClientWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := counter(t)
		other := on(t, s.Store)
		outer := need(other.Lock(t.Context(), "n"))(t)
		var waiting []waiter
		for range 40 {
			waiting = append(waiting, queued(t.Context(), c, "n"))
		}
		must(t, outer.Unlock(t.Context()))
		lease, waiting := waiting[0].lease(t), waiting[1:]
		passOn := func() {
			must(t, lease.Unlock(t.Context()))
			lease, waiting = waiting[0].lease(t), waiting[1:]
		}
		for changes(s); changes(s) == 0; {
			passOn()
		}
		w := queued(t.Context(), other, "n")
		must(t, lease.Unlock(t.Context()))
		if synctest.Wait(); len(w) == 0 {
			t.Fatal("another client waits, and the lock went on within the process")
		}
		must(t, w.lease(t).Unlock(t.Context()))
		lease, waiting = waiting[0].lease(t), waiting[1:]
		w = queued(t.Context(), other, "n")
		for range waiting {
			passOn()
		}
		if len(w) > 0 {
			t.Error("another client has the lock before the turn is over")
		}
		must(t, lease.Unlock(t.Context()))
		must(t, w.lease(t).Unlock(t.Context()))
	})
}

// A waiter that needs other terms than those of the holder's lease costs a command.
func TestALocalHandoffNeedsTheSameTermsOfBothLeases(t *testing.T) {
	ctx := context.Background()
	lock := func(opts ...Option) func(*testing.T, *Client) *Lease {
		return func(t *testing.T, c *Client) *Lease {
			l := need(c.Lock(ctx, "n", opts...))(t)
			return l
		}
	}
	fenced := func(c *Client) Locker { return c.With(Fenced()) }
	for name, x := range map[string]struct {
		hold func(*testing.T, *Client) *Lease
		next func(*Client) Locker
		opts []Option
		then func(*testing.T, *Client, *Lease)
		sent int
	}{
		"passed on":               {},
		"the holder's lease ends": {hold: lock(WithLease(watchdogTimeout)), sent: 1},
		"the next one's ends":     {opts: []Option{WithLease(watchdogTimeout)}, sent: 1},
		"held for so long":        {hold: lock(WithMaxHold(time.Hour)), sent: 1},
		"to be held for so long":  {opts: []Option{WithMaxHold(time.Hour)}, sent: 1},
		"a token":                 {next: fenced, sent: 1},
		"the holder's token": {hold: func(t *testing.T, c *Client) *Lease {
			l := need(fenced(c).Lock(ctx, "n"))(t)
			return l
		}, sent: 1},
		"held for a while": {then: func(*testing.T, *Client, *Lease) { time.Sleep(250 * time.Millisecond) }, sent: 1},
		"entered again": {then: func(t *testing.T, c *Client, l *Lease) {
			must(t, thenUnlock(c.Lock(l.Context(), "n")))
		}, sent: 3},
		"delegated": {then: func(t *testing.T, c *Client, l *Lease) {
			holdingOf(l).(*lease.Hold).Tenure.Delegated.Store(true) // as Delegations does; then no handoff happens
		}, sent: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := counter(t)
				if x.hold == nil {
					x.hold = lock()
				}
				var l Locker = c
				if x.next != nil {
					l = x.next(c)
				}
				lease := x.hold(t, c)
				next := queued(ctx, l, "n", x.opts...)
				changes(s)
				if x.then != nil {
					x.then(t, c, lease)
				}
				must(t, lease.Unlock(ctx))
				after := next.lease(t)
				if sent := changes(s); sent != x.sent {
					t.Errorf("%d commands, want %d", sent, x.sent)
				}
				must(t, after.Unlock(ctx))
			})
		})
	}
}

// A text belongs to one lease: it does not go to the next one with the record.
func TestATextIsGoneWhenItsLeaseIsHandedOff(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		first := need(c.Lock(t.Context(), "n"))(t)
		must(t, leader.Proclaim(t.Context(), first, "first"))
		next := queued(t.Context(), c, "n")
		must(t, first.Unlock(t.Context()))
		second := next.lease(t)
		for p, err := range leader.Observe(t.Context(), open(), "n") {
			if must(t, err); p.Identity != "" {
				t.Errorf("the lease that proclaimed %q has ended, and another holds the lock", p.Identity)
			}
			break
		}
		must(t, second.Unlock(t.Context()))
	})
}

// After a local handoff the lease has what is left of the tenure, counted from the request that acquired it
// (rule 2 of the suite).
func TestALeaseThatWasHandedOffEndsWithItsRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 10 * time.Second
		c, s := counter(t, WithWatchdogTimeout(timeout))
		began := time.Now()
		lease := need(c.Lock(t.Context(), "n"))(t)
		next := queued(t.Context(), c, "n")
		s.hook("Renew", func(*call) error { return &backend.Fault{Err: errGone, Temporary: true} })
		time.Sleep(250*time.Millisecond - time.Millisecond)
		changes(s)
		must(t, lease.Unlock(t.Context()))
		after := next.lease(t)
		if sent := changes(s); sent != 0 {
			t.Fatalf("%d commands", sent)
		}
		<-after.Context().Done()
		if held, want := time.Since(began), timeout-clock.Margin(timeout); held != want {
			t.Errorf("it ended %v after the lock was acquired, want %v", held, want)
		}
		if !errors.Is(after.Err(), ErrLost) {
			t.Errorf("%v", after.Err())
		}
		if err := after.Unlock(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// A lease that was handed off is renewed like one that was acquired.
func TestALeaseThatWasHandedOffIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := counter(t)
		lease := need(c.Lock(t.Context(), "n"))(t)
		next := queued(t.Context(), c, "n")
		changes(s)
		must(t, lease.Unlock(t.Context()))
		after := next.lease(t)
		time.Sleep(5 * watchdogTimeout)
		must(t, after.Err())
		must(t, after.Unlock(t.Context()))
		if sent := changes(s); sent != 1 {
			t.Errorf("%d commands, want the release", sent)
		}
	})
}

// The lock is free again when its waiter leaves at the moment of the handoff.
func TestALockHandedOffToAWaiterThatLeavesIsReleased(t *testing.T) {
	for i := range 50 {
		store := memory.New()
		c := on(t, store)
		other := on(t, store)
		lease := need(c.Lock(t.Context(), "n"))(t)
		ctx, leave := context.WithCancel(t.Context())
		w := begin(ctx, c, "n")
		for !waits(c) {
			time.Sleep(10 * time.Microsecond)
		}
		var both sync.WaitGroup
		both.Go(leave)
		both.Go(func() {
			if err := lease.Unlock(t.Context()); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		})
		both.Wait()
		if got := <-w; got.err == nil {
			must(t, got.Unlock(t.Context()))
		} else if !errors.Is(got.err, context.Canceled) {
			t.Fatal(got.err)
		}
		must(t, thenUnlock(other.Lock(t.Context(), "n", WithWait(10*time.Second))))
		must(t, c.Close())
		must(t, other.Close())
	}
}

// Calls of three clients wait, leave, try and re-enter at random.
func TestLocalHandoffsUnderLoadExcludeEachOther(t *testing.T) {
	store := memory.New()
	var clients []*Client
	for range 3 {
		c, err := New(store, WithWatchdogTimeout(time.Second))
		must(t, err)
		clients = append(clients, c)
	}
	var inside atomic.Int64
	var wg sync.WaitGroup
	for i := range 48 {
		c := clients[i%len(clients)]
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for range 100 {
				ctx, cancel := context.WithCancel(context.Background())
				if r.IntN(3) == 0 {
					time.AfterFunc(time.Duration(r.IntN(1500))*time.Microsecond, cancel)
				}
				var opts []Option
				switch r.IntN(12) {
				case 0:
					opts = append(opts, WithLease(time.Second))
				case 1:
					opts = append(opts, WithMaxHold(time.Second))
				}
				var l *Lease
				var err error
				if r.IntN(6) == 0 {
					l, err = c.TryLock(ctx, "n", opts...)
				} else {
					l, err = c.Lock(ctx, "n", opts...)
				}
				if err != nil {
					if !errors.Is(err, context.Canceled) && !errors.Is(err, ErrNotAcquired) {
						t.Error(err)
					}
					cancel()
					continue
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d inside", n)
				}
				if r.IntN(20) == 0 {
					if in, err := c.Lock(l.Context(), "n"); err == nil {
						_ = in.Unlock(context.Background())
					}
				}
				if r.IntN(30) == 0 {
					delegation.FromContext(l.Context())
				}
				if r.IntN(200) == 0 {
					time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
				}
				inside.Add(-1)
				if err := l.Unlock(ctx); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	for _, c := range clients {
		must(t, c.Close())
	}
}

// slowTexts delays the removal of a text on its way to the store.
type slowTexts struct{ *memory.Store }

func (b slowTexts) Open(h backend.Handler) (backend.Store, error) {
	s, err := b.Store.Open(h)
	return slowTextsSession{s}, err
}

type slowTextsSession struct{ backend.Store }

func (s slowTextsSession) Capabilities() backend.Capabilities {
	c := s.Store.Capabilities()
	c.Proclamations = slowTextsStore{c.Proclamations}
	return c
}

type slowTextsStore struct{ backend.ProclamationStore }

func (x slowTextsStore) Proclaim(ctx context.Context, r backend.ProclaimRequest) (bool, error) {
	if r.Text == "" {
		time.Sleep(100 * time.Millisecond)
	}
	return x.ProclamationStore.Proclaim(ctx, r)
}

// The removal of a text by a lease that has ended leaves the text of the next lease alone.
func TestALateRemovalOfATextDoesNotHitTheNextLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, slowTexts{memory.New()})
		first := need(c.Lock(t.Context(), "n"))(t)
		next := queued(t.Context(), c, "n")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		wants(t, leader.Proclaim(ctx, first, ""), context.DeadlineExceeded)
		must(t, first.Unlock(t.Context()))
		second := next.lease(t)
		must(t, leader.Proclaim(t.Context(), second, "second"))
		time.Sleep(time.Second)
		for p, err := range leader.Observe(t.Context(), c, "n") {
			if must(t, err); p.Identity != "second" {
				t.Errorf("the holder proclaimed \"second\" and the text is %q", p.Identity)
			}
			break
		}
		must(t, second.Unlock(t.Context()))
	})
}

// Two loops of a client follow a name. The request of the first is slow, and misses a text that the second has seen.
func TestALoopLearnsOfTheEndOfATextThatAnotherLoopHasNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		b := spyOn(store, "Proclamations", nil)
		holder, c := on(t, store), on(t, b)
		var seen [2]string
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		follow := func(i int) {
			for p := range leader.Observe(ctx, c, "n") {
				seen[i] = p.Identity
			}
		}
		go follow(0)
		synctest.Wait()
		arrives := make(chan struct{})
		b.hook("Proclaimed", onceClosed(arrives))
		lease := need(holder.Lock(t.Context(), "n"))(t)
		must(t, leader.Proclaim(t.Context(), lease, "here"))
		synctest.Wait() // the first loop asks
		b.hook("Proclaimed", nil)
		go follow(1)
		synctest.Wait()
		if seen[1] != "here" {
			t.Fatalf("the second loop sees %q", seen[1])
		}
		must(t, lease.Unlock(t.Context()))
		close(arrives)
		time.Sleep(time.Minute)
		synctest.Wait()
		if seen[0] != "" || seen[1] != "" {
			t.Errorf("a minute after the Unlock the loops see %q", seen)
		}
	})
}

// The lease ends before its text is removed, and the text is removed before the release, whatever the context.
func TestAnUnlockEndsTheLeaseAndThenRemovesItsText(t *testing.T) {
	for _, patient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			c, other := on(t, slowTexts{store}), on(t, store)
			lease := need(c.Lock(t.Context(), "n"))(t)
			must(t, leader.Proclaim(t.Context(), lease, "here"))
			following, stop := context.WithCancel(t.Context())
			texts := make(chan string, 9)
			go func() {
				defer close(texts)
				for p := range leader.Observe(following, other, "n") {
					texts <- p.Identity
				}
			}()
			synctest.Wait()
			ctx, cancel := context.WithCancel(context.Background())
			if !patient {
				cancel()
			}
			unlocked := later(func() error { return lease.Unlock(ctx) })
			synctest.Wait() // the removal of the text is on its way
			wants(t, lease.Err(), ErrReleased)
			wants(t, context.Cause(lease.Context()), ErrReleased)
			if err := <-unlocked; patient {
				must(t, err)
			} else {
				wants(t, err, context.Canceled)
			}
			time.Sleep(time.Second)
			cancel()
			stop()
			var seen []string
			for text := range texts {
				seen = append(seen, text)
			}
			if !slices.Equal(seen, []string{"here", ""}) {
				t.Errorf("a follower saw %q within a second, want the text and its end", seen)
			}
		})
	}
}

// The handoff cannot draw a fencing token, since the counter is exhausted: the owner has the lock still. Unlock
// releases it all the same.
func TestUnlockFreesALockWhoseHandoffIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		full := func(*call) error { return &backend.Fault{Err: backend.ErrWrongKind} }
		b := spyOn(s, "Queue", nil)
		c := on(t, b).With(Fenced())
		l := need(c.Lock(t.Context(), "x"))(t)
		next := queued(t.Context(), c, "x")
		b.hook("Serve", full)
		must(t, l.Unlock(t.Context()))
		must(t, next.lease(t).Unlock(t.Context()))
		if n := b.take("Serve"); n == 0 {
			t.Error("there was no handoff by the store")
		}
	})
}
