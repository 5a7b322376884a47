package clienttest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/slow"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// callerKey is the key of the caller's name.
type callerKey struct{}

// journal records the events of an observer.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) observer() Observer {
	return Observer{
		Waiting: func(e Event) { j.add("%s %s waiting, %v", e.Kind, e.Name, e.Context.Value(callerKey{})) },
		Acquired: func(e Event) {
			j.add("%s %s acquired: lease %d, holds %d, contended %v, %v",
				e.Kind, e.Name, e.Lease, e.Holds, e.Contended, e.Context.Value(callerKey{}))
		},
		NotAcquired: func(e Event) {
			j.add("%s %s not acquired: lease %d, contended %v, not acquired %v",
				e.Kind, e.Name, e.Lease, e.Contended, errors.Is(e.Err, ErrNotAcquired))
		},
		Renewed: func(e Event) { j.add("%s %s renewed", e.Kind, e.Name) },
		Lost: func(e Event) {
			j.add("%s %s lost: lease %d, %v, asked %v", e.Kind, e.Name, e.Lease, errors.Is(e.Err, ErrLost), e.Asked)
		},
		Released: func(e Event) { j.add("%s %s released: lease %d, %v", e.Kind, e.Name, e.Lease, e.Err) },
	}
}

func TestEventsNameTheirLeaseAndCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		store := memory.New()
		c, err := New(store, WithObserver(j.observer()))
		must(t, err)
		defer c.Close()
		who := func(s string) context.Context { return context.WithValue(t.Context(), callerKey{}, s) }
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			got := j.take()
			slices.Sort(got) // the event of the next grant may precede that of the release
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got\n%q, want\n%q", got, want)
			}
		}
		outer := need(c.Lock(who("a"), "n", WithLease(time.Minute)))(t)
		inner := need(c.Lock(outer.Context(), "n", WithLease(time.Minute)))(t)
		expect("lock n acquired: lease 1, holds 1, contended false, a",
			"lock n acquired: lease 2, holds 2, contended false, a")

		c.TryLock(who("b"), "n")
		expect("lock n not acquired: lease 0, contended false, not acquired true")

		got := make(chan *Lease)
		go func() { l, _ := c.Lock(who("c"), "n", WithLease(time.Second)); got <- l }()
		expect("lock n waiting, c")
		inner.Unlock(t.Context())
		outer.Unlock(t.Context())
		third := <-got
		expect("lock n released: lease 2, <nil>", "lock n released: lease 1, <nil>",
			"lock n acquired: lease 3, holds 1, contended true, c")
		time.Sleep(2 * time.Second)
		expect("lock n lost: lease 3, true, asked true")
		if third.Unlock(t.Context()); len(j.take()) != 1 {
			t.Error("an Unlock of a lost lease is told as well")
		}

		write := c.RW().Write
		w := need(write.Lock(who("d"), "rw"))(t)
		time.Sleep(11 * time.Second)
		w.Unlock(t.Context())
		expect("write rw acquired: lease 4, holds 1, contended false, d",
			"write rw renewed", "write rw released: lease 4, <nil>")

		l := latch.New(c, "latch")
		l.TrySet(t.Context(), 1)
		open := later(func() error { return l.Wait(who("e")) })
		expect("latch latch waiting, e")
		l.CountDown(t.Context())
		<-open
		expect("latch latch acquired: lease 0, holds 0, contended true, e")

		need(c.Lock(who("f"), "n"))(t)
		store.Delete("n")
		time.Sleep(2 * time.Second)
		expect("lock n acquired: lease 5, holds 1, contended false, f", "lock n lost: lease 5, true, asked false")
	})
}

// The store's answer took so long that the lease is over by the time Lock returns.
func TestAnObserverHearsOfTheGrantBeforeTheLoss(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			o := j.observer()
			told := o.Acquired
			o.Acquired = func(e Event) { time.Sleep(time.Second); told(e) } // a slow observer
			c := on(t, memory.New(), WithObserver(o))
			if _, err := c.Lock(t.Context(), "n", WithLease(100*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := fmt.Sprintf("%.15q", j.take()); got != `["lock n acquired" "lock n lost: le"]` {
				t.Error(got)
			}
		})
	}
}

func TestSeveralObserversAreCalledInOrder(t *testing.T) {
	var said []string
	say := func(s string) ClientOption {
		return WithObserver(Observer{Released: func(e Event) { said = append(said, s+e.Name) }})
	}
	c := on(t, memory.New(), say("a"), WithObserver(Observer{Renewed: func(Event) {}}), say("b"))
	must(t, thenUnlock(c.Lock(t.Context(), "x")))
	if fmt.Sprint(said) != "[ax bx]" {
		t.Error(said)
	}
}

// gauges count what begins and ends, by kind, as metrics do.
type gauges struct {
	mu            sync.Mutex
	waiting, held map[string]int
}

func (g *gauges) observer() Observer {
	g.waiting, g.held = make(map[string]int), make(map[string]int)
	add := func(m map[string]int, kind string, n int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		m[kind] += n
	}
	return Observer{
		Waiting: func(e Event) { add(g.waiting, e.Kind, 1) },
		Acquired: func(e Event) {
			if e.Contended {
				add(g.waiting, e.Kind, -1)
			}
			add(g.held, e.Kind, 1)
		},
		NotAcquired: func(e Event) {
			if e.Contended {
				add(g.waiting, e.Kind, -1)
			}
		},
		Released: func(e Event) { add(g.held, e.Kind, -1) },
	}
}

func (g *gauges) check(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for kind, n := range g.waiting {
		if n != 0 {
			t.Errorf("%d %s wait", n, kind)
		}
	}
	for kind, n := range g.held {
		if n != 0 {
			t.Errorf("%d %s are held", n, kind)
		}
	}
}

// A lock of one kind is entered again by way of another: its events are all of one kind.
func TestTheEventsOfAReentryHaveOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gauges
		c := on(t, memory.New(), WithObserver(g.observer()))
		fair := c.With(Fair())
		outer := need(c.Lock(t.Context(), "n"))(t)
		inner := need(c.Lock(outer.Context(), "n"))(t)
		got := queued(outer.Context(), fair, "n") // it waits for the inner hold
		must(t, inner.Unlock(t.Context()))
		l := got.lease(t)
		must(t, l.Unlock(t.Context()))
		must(t, outer.Unlock(t.Context()))
		g.check(t)
	})
}

// An observer hears of a wrong argument only if it was told that the call waits: the end of each wait is reported.
func TestAWrongArgumentIsReportedAfterAWaitOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gauges
		var refused []Event
		told := Observer{NotAcquired: func(e Event) { refused = append(refused, e) }}
		c := on(t, memory.New(), WithObserver(g.observer()), WithObserver(told))
		ctx, rw := t.Context(), c.RW()
		strict := c.With(NonReentrant())
		outer := lock(t, c, ctx, "n")
		wants(t, errorOf(strict.Lock(outer.Context(), "n")), ErrInvalid)
		wants(t, errorOf(strict.TryLock(outer.Context(), "n")), ErrInvalid)
		delegation.FromContext(outer.Context())
		wants(t, errorOf(strict.Lock(outer.Context(), "n")), ErrInvalid)
		unlock(t, outer)
		reader := lock(t, rw.Read, ctx, "rw")
		wants(t, errorOf(rw.Write.Lock(reader.Context(), "rw")), ErrInvalid)
		unlock(t, reader)
		if len(refused) > 0 {
			t.Errorf("wrong arguments are reported: %v", refused)
		}

		writer := lock(t, rw.Write, ctx, "rw")
		reader = lock(t, rw.Read, writer.Context(), "rw")
		other := lock(t, rw.Read, writer.Context(), "rw")
		got := queued(reader.Context(), rw.Write, "rw") // it waits for the other reader
		unlock(t, writer)
		unlock(t, other) // the first reader is alone, and cannot become a writer
		wants(t, (<-got).err, ErrInvalid)
		unlock(t, reader)
		if len(refused) != 1 || !refused[0].Contended {
			t.Errorf("reported %v, want the end of the wait", refused)
		}
		g.check(t)
	})
}

// A release whose caller has left reports the hold count that remains.
func TestAReleaseWhoseCallerHasLeftReportsWhatRemains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan int, 2)
		store := slow.Store{Store: memory.New(), Release: time.Second} // or the answer may be there before the caller left
		c := on(t, store, WithObserver(Observer{Released: func(e Event) { left <- e.Holds }}))
		outer := need(c.Lock(t.Context(), "n"))(t)
		inner := need(c.Lock(outer.Context(), "n"))(t)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		wants(t, inner.Unlock(gone), context.Canceled)
		wants(t, outer.Unlock(gone), context.Canceled)
		if a, b := <-left, <-left; a != 1 || b != 0 {
			t.Errorf("the hold counts %d and %d remain, want 1 and 0", a, b)
		}
		must(t, c.Shutdown(t.Context()))
	})
}

// Nor does a wait for a callee to leave, and then for the lock itself, change the kind.
func TestTheEventsOfACallThatOutlivesItsDelegationHaveOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gauges
		store := memory.New()
		c, callee := on(t, store, WithObserver(g.observer())), on(t, store)
		fair := c.With(Fair())
		outer := need(c.Lock(t.Context(), "n"))(t)
		within := need(delegation.NewContext(t.Context(), callee, delegation.FromContext(outer.Context())...))(t)
		inner := need(callee.Lock(within, "n"))(t)
		got := queued(context.WithoutCancel(outer.Context()), fair, "n") // it waits for the callee
		must(t, outer.Unlock(t.Context()))
		must(t, inner.Unlock(t.Context()))
		l := got.lease(t)
		must(t, l.Unlock(t.Context()))
		g.check(t)
	})
}

// A LockAll that acquired its locks too late releases them and waits once more.
func TestAnObserverHearsOnceOfEachWaitOfLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gauges
		o := g.observer()
		told, slow := o.Acquired, true
		// The second lock's lease ends before it is acquired: the observer has heard of the first grant by then.
		o.Acquired = func(e Event) {
			told(e)
			if e.Name == "a" && slow {
				slow = false
				time.Sleep(time.Minute)
			}
		}
		store := memory.New()
		c := on(t, store, WithObserver(o))
		other := on(t, store)
		l := need(other.Lock(t.Context(), "a"))(t)
		got := make(chan *Lease)
		go func() {
			m, err := c.LockAll(t.Context(), []string{"a", "b"}, WithWait(10*time.Minute))
			if err == nil {
				err = m.Unlock(context.Background())
			}
			t.Log(err)
			got <- nil
		}()
		synctest.Wait()
		must(t, l.Unlock(t.Context()))
		<-got
		time.Sleep(time.Minute)
		synctest.Wait()
		g.check(t)
	})
}

// A slow handler delays neither leases nor calls; the log counts the events that were dropped.
func TestEventsBeyondTheQueueAreDroppedAndCounted(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		log, lines := recorder()
		free := make(chan struct{})
		told := 0
		c := open(WithLogger(log), WithObserver(Observer{Lost: func(Event) { <-free; told++ }}))
		const leases = announce.Capacity + 500
		for i := range leases {
			must(t, errorOf(c.Lock(t.Context(), fmt.Sprint(i), WithLease(MinLease))))
			if i == 0 {
				time.Sleep(time.Second) // the handler has it
			}
		}
		time.Sleep(2 * time.Second)
		close(free)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		// One is with the handler, and as many as the queue holds wait.
		if want := announce.Capacity + 1; told != want {
			t.Errorf("%d of %d events were told, want %d", told, leases, want)
		}
		dropped := 0
		for _, line := range lines() {
			_, n, _ := strings.Cut(line, "events=")
			more := need(strconv.Atoi(n))(t)
			dropped += more
		}
		if dropped != leases-told {
			t.Errorf("the log counts %d events as not told, want %d", dropped, leases-told)
		}
	})
}

// A handler that ends its goroutine, as testing.T.FailNow does, stops no other event.
func TestAHandlerThatEndsItsGoroutineStopsNoOtherEvent(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		told := 0
		c := open(WithObserver(Observer{Lost: func(Event) {
			if told++; told == 1 {
				runtime.Goexit()
			}
		}}))
		for _, name := range []string{"x", "y"} {
			must(t, errorOf(c.Lock(t.Context(), name, WithLease(MinLease))))
		}
		time.Sleep(time.Second)
		must(t, c.Close())
		if told != 2 {
			t.Errorf("%d events were told, want 2", told)
		}
	})
}

// A handler that does not return delays no acquisition but its own.
func TestASlowAcquiredHandlerHoldsNoSlot(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		free := make(chan struct{})
		c := open(WithObserver(Observer{Acquired: func(e Event) {
			if e.Name != "free" {
				<-free
			}
		}}))
		for i := range 256 {
			go c.Lock(context.Background(), fmt.Sprint(i))
		}
		synctest.Wait()
		_, err := c.Lock(context.Background(), "free")
		if err != nil {
			t.Errorf("another lock: %v", err)
		}
		close(free)
		time.Sleep(time.Second)
	})
}

// A loss has a reason.
func TestALossTellsItsReason(t *testing.T) {
	for reason, act := range map[string]func(t *testing.T, c *Client, s *memory.Store, spy *spy){
		"asked": func(t *testing.T, c *Client, _ *memory.Store, _ *spy) {
			must(t, errorOf(c.Lock(t.Context(), "n", WithLease(time.Second))))
		},
		"unanswered": func(t *testing.T, c *Client, _ *memory.Store, spy *spy) {
			must(t, errorOf(c.Lock(t.Context(), "n")))
			spy.hook("Renew", func(x *call) error { <-x.ctx.Done(); return x.ctx.Err() })
		},
		"late": func(t *testing.T, c *Client, _ *memory.Store, _ *spy) {
			must(t, errorOf(c.Lock(t.Context(), "n")))
			sleepMachine(c, time.Hour)
		},
		"removed": func(t *testing.T, c *Client, s *memory.Store, _ *spy) {
			must(t, errorOf(c.Lock(t.Context(), "n")))
			s.Delete("n")
		},
		"unlocked": func(t *testing.T, c *Client, _ *memory.Store, _ *spy) {
			must(t, errorOf(c.Lock(t.Context(), "n")))
			must(t, errorOf(c.ForceUnlock(t.Context(), "n", "")))
		},
		"closed": func(t *testing.T, c *Client, _ *memory.Store, _ *spy) {
			must(t, errorOf(c.Lock(t.Context(), "n")))
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_ = c.Shutdown(ended)
		},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
				var got []string
				spy := spyOn(s, "", nil)
				c := on(t, spy, WithObserver(Observer{Lost: func(e Event) {
					got = append(got, e.Reason)
					check.Equal(t, "Asked is %v", e.Asked, e.Reason == "asked")
				}}))
				act(t, c, s, spy)
				time.Sleep(time.Minute)
				synctest.Wait()
				check.ErrorIf(t, !slices.Equal(got, []string{reason}), "reasons: %q", got)
			})
		})
	}
}
