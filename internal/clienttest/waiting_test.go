package clienttest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/semaphore"
)

// far is a store that is 20 ms away.
func far(s *memory.Store) backend.Backend {
	return spyOn(s, "", hooks{"Acquire": delayed(20 * time.Millisecond)})
}

// WithWait bounds the time that a call waits, and not the round trip of its request.
func TestAFreeLockIsAcquiredWithAWaitShorterThanARoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := on(t, far(s))
		defer c.Close()
		for _, wait := range []time.Duration{time.Nanosecond, 5 * time.Millisecond, 15 * time.Millisecond} {
			lease := need(c.Lock(t.Context(), "x", WithWait(wait)))(t)
			must(t, thenUnlock(c.Lock(lease.Context(), "x", WithWait(wait))))
			must(t, lease.Unlock(t.Context()))
			must(t, thenUnlock(c.LockAll(t.Context(), []string{"a", "b"}, WithWait(wait))))
		}
	})
}

// A held lock is refused after one round trip, with what is known of its holder.
func TestAHeldLockIsNotAcquiredWithAWaitShorterThanARoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := on(t, far(s)), open()
		defer c.Close()
		must(t, errorOf(other.Lock(t.Context(), "x")))
		start := time.Now()
		wants(t, errorOf(c.Lock(t.Context(), "x", WithWait(5*time.Millisecond))), ErrNotAcquired)
		if d := time.Since(start); d != 20*time.Millisecond {
			t.Errorf("refused after %v, want one round trip", d)
		}
		mine := need(c.Lock(t.Context(), "mine"))(t)
		start = time.Now()
		wants(t, errorOf(c.Lock(t.Context(), "mine", WithWait(5*time.Millisecond))), ErrNotAcquired)
		if d := time.Since(start); d != 5*time.Millisecond {
			t.Errorf("waited %v for this client's own holder, want 5ms", d)
		}
		must(t, mine.Unlock(t.Context()))
	})
}

// A call behind another call of its client, which is asking or holds the lock, reports ErrNotAcquired and not
// ErrUnavailable.
func TestAShortWaitBehindAnotherCallIsNotUnavailable(t *testing.T) {
	for name, wait := range map[string]time.Duration{"which asks": 0, "which holds": 27 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				c := on(t, far(s))
				defer c.Close()
				go func() {
					lease, err := c.Lock(t.Context(), "x")
					if err == nil {
						time.Sleep(10 * time.Millisecond)
						err = lease.Unlock(t.Context())
					}
					noError(t, err)
				}()
				time.Sleep(wait + time.Millisecond)
				start := time.Now()
				_, err := c.Lock(t.Context(), "x", WithWait(5*time.Millisecond))
				if d := time.Since(start); d != 5*time.Millisecond {
					t.Errorf("waited %v", d)
				}
				if !errors.Is(err, ErrNotAcquired) {
					t.Errorf("got %v, want %v", err, ErrNotAcquired)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// A call waits a second for a store that does not answer, or until its context ends.
func TestAStoreThatDoesNotAnswerEndsAShortWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		let := make(chan struct{})
		c := on(t, spyOn(s, "", hooks{"Acquire": func(c *call) error {
			<-let
			return c.run(context.Background())
		}}))
		start := time.Now()
		wants(t, errorOf(c.Lock(t.Context(), "x", WithWait(5*time.Millisecond))), ErrUnavailable)
		if d := time.Since(start); d != bound.FirstAnswer {
			t.Errorf("unavailable after %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wants(t, errorOf(c.Lock(ctx, "y", WithWait(5*time.Millisecond))), context.DeadlineExceeded)
		if d := time.Since(start); d != bound.FirstAnswer+50*time.Millisecond {
			t.Errorf("the caller's deadline is passed by %v", d)
		}
		close(let)
		c.Close()
	})
}

func TestLocalWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		l := need(c.Lock(t.Context(), "x"))(t)
		var order []int
		for i := range 20 {
			go func() {
				l, err := c.Lock(t.Context(), "x")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				l.Unlock(t.Context())
			}()
			synctest.Wait()
		}
		must(t, l.Unlock(t.Context()))
		synctest.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("served %v", order)
			}
		}
		if left := engineOf(c).Probe().Snapshot(); len(order) != 20 || left.Names != 0 || left.Watches != 0 {
			t.Fatalf("%d served, left: %+v", len(order), left)
		}
	})
}

// See rule 13 of package backendtest.
func TestAPollingWaitersBoundedWaitEndsWithNotAcquired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		other := on(t, st)
		c := on(t, spyOn(st, "", hooks{"Acquire": delayed(5 * time.Millisecond)}))
		must(t, errorOf(other.Lock(t.Context(), "x")))
		polling := c.With(Polling(time.Millisecond))
		for i := range 50 {
			wait := 100*time.Millisecond + time.Duration(i)*time.Millisecond/7
			wants(t, errorOf(polling.Lock(t.Context(), "x", WithWait(wait))), ErrNotAcquired)
		}
		time.Sleep(time.Second) // the last command's answer comes to no caller
		synctest.Wait()
	})
}

// A call that polls slowly cannot claim what the store keeps for its client's entry. When it becomes the first waiter
// of the client, the entry leaves the store's queue, and the next client is served.
func TestNothingIsKeptForAPollingWaiterBehindOneThatLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		holder, c, other := open(), open(), open()
		polling := c.With(Polling(50 * time.Millisecond))
		for _, behind := range [][]Locker{{polling}, {polling, other}, {polling, c}, {polling, c, other}} {
			l := need(holder.Lock(t.Context(), "x"))(t)
			ctx, leave := context.WithCancel(t.Context())
			first := queued(ctx, c, "x")
			var passed []<-chan error
			for _, k := range behind {
				passed = append(passed, later(func() error { return thenUnlock(k.Lock(t.Context(), "x")) }))
				synctest.Wait()
			}
			leave()
			wants(t, (<-first).err, context.Canceled)
			synctest.Wait()
			must(t, l.Unlock(t.Context()))
			start := time.Now()
			for _, x := range passed {
				must(t, <-x)
			}
			if took := time.Since(start); took > 400*time.Millisecond {
				t.Errorf("%d waiters had the free lock after %v", len(passed), took)
			}
			synctest.Wait()
		}
		time.Sleep(5 * time.Second)
		if s := engineOf(c).Probe().Snapshot(); s != (engine.Snapshot{}) {
			t.Errorf("left: %+v", s)
		}
	})
}

// The request that takes the entry out of the store's queue is late: it arrives after the next waiter has enrolled.
func TestAnEntryThatLeavesLateTakesNoOtherWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		arrives := make(chan struct{})
		c := on(t, spyOn(s, "Queue", hooks{"Leave": func(c *call) error {
			<-arrives
			return c.run(c.ctx)
		}}))
		l := need(open().Lock(t.Context(), "x"))(t)
		other := queued(t.Context(), open(), "x")
		ctx, leave := context.WithCancel(t.Context())
		first := queued(ctx, c, "x")
		polling := queued(t.Context(), c.With(Polling(50*time.Millisecond)), "x", WithWait(10*time.Second))
		last := queued(t.Context(), c, "x")
		leave()
		wants(t, (<-first).err, context.Canceled)
		wants(t, (<-polling).err, ErrNotAcquired)
		time.Sleep(10 * time.Second) // last has enrolled
		close(arrives)
		synctest.Wait()
		must(t, l.Unlock(t.Context()))
		start := time.Now()
		must(t, other.lease(t).Unlock(t.Context()))
		must(t, last.lease(t).Unlock(t.Context()))
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("the lock was free for %v", took)
		}
	})
}

// See rule 13 of package backendtest.
func TestAStoreThatIsUnavailableFailsAllWaitersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		other, c := on(t, st), on(t, st)
		must(t, errorOf(other.Lock(t.Context(), "x")))
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				wants(t, errorOf(c.Lock(t.Context(), "x")), ErrUnavailable)
			})
		}
		synctest.Wait()
		start := time.Now()
		st.SetDown(errors.New("gone"))
		wg.Wait()
		if d := time.Since(start); d > 65*time.Second {
			t.Errorf("the last was told after %v", d)
		}
	})
}

func TestPollingAsksAfterGrowingPausesAndSubscribesToNothing(t *testing.T) {
	for _, x := range []struct {
		pause       time.Duration
		least, most int           // asks in 20 s
		notices     time.Duration // a release, at the latest
		pauses      string
	}{
		{30 * time.Millisecond, 10, 30, 3 * time.Second, "from 30 ms to 1920 ms"},
		// A waiter that asks so often has a place in the store's queue, and keeps its pause.
		{10 * time.Millisecond, 1300, 4000, 15 * time.Millisecond, "of 10 ms"},
	} {
		t.Run(x.pause.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				spy := spyOn(s, "Queue", nil)
				a, b := open(), on(t, spy)
				polling := b.With(Polling(x.pause))
				spy.take("Acquire")
				l := need(a.Lock(t.Context(), "x"))(t)
				got := begin(t.Context(), polling, "x")
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if engineOf(b).Probe().Snapshot().Watches != 0 {
					t.Error("a polling waiter watches")
				}
				if n := spy.take("Acquire"); n < x.least || n > x.most {
					t.Errorf("asked %d times in 20 s, want pauses %s", n, x.pauses)
				}
				must(t, l.Unlock(t.Context()))
				start := time.Now()
				m := got.lease(t)
				if d := time.Since(start); d > x.notices {
					t.Errorf("noticed the release after %v", d)
				}
				must(t, m.Unlock(t.Context()))
				wants(t, errorOf(b.With(Polling(-1)).Lock(t.Context(), "y")), ErrInvalid)
			})
		})
	}
}

// A release wakes a waiter that does not poll, though a call of its client that polls slowly is before it.
func TestAWaiterBehindAPollingOneIsWokenByTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		holder, c := open(), open()
		polling := c.With(Polling(time.Minute))
		lease := need(holder.Lock(t.Context(), "x", WithLease(9*time.Hour)))(t)
		first := later(func() error { return thenUnlock(polling.Lock(t.Context(), "x")) })
		time.Sleep(20 * time.Minute) // refused, it pauses for a time that grows
		next := queued(t.Context(), c, "x")
		time.Sleep(40 * time.Minute)
		must(t, lease.Unlock(t.Context()))
		start := time.Now()
		must(t, <-first)
		must(t, next.lease(t).Unlock(t.Context()))
		if took := time.Since(start); took > 0 {
			t.Errorf("it had the lock %v after the release", took)
		}
	})
}

// Once the call that polls has left, the waiter has a place in the store's queue, before clients that come later.
func TestAWaiterBehindAPollingOneThatLeftIsBeforeLaterClients(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		holder, c, other := open(), open(), open()
		polling := c.With(Polling(time.Minute))
		lease := need(holder.Lock(t.Context(), "x", WithLease(9*time.Hour)))(t)
		first := queued(t.Context(), polling, "x", WithWait(40*time.Minute))
		next := queued(t.Context(), c, "x", WithWait(time.Hour))
		wants(t, (<-first).err, ErrNotAcquired)
		synctest.Wait()
		last := queued(t.Context(), other, "x", WithWait(time.Hour))
		must(t, lease.Unlock(t.Context()))
		start := time.Now()
		must(t, next.lease(t).Unlock(t.Context()))
		must(t, last.lease(t).Unlock(t.Context()))
		if took := time.Since(start); took > 0 {
			t.Errorf("they had the lock %v after the release", took)
		}
	})
}

// forbids is a handler of a session that may watch nothing.
type forbids struct{ backend.Handler }

func (h forbids) Watching(t backend.Topic) { h.Handler.(backend.WatchFailer).WatchFailed(t, errGone) }

// A waiter fails if its topic cannot be watched; a call behind it that polls needs no messages.
func TestAPollingCallBehindOneWhoseTopicCannotBeWatchedWaits(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b, arrives := spyOn(s, "", nil), make(chan struct{})
		b.listen = func(h backend.Handler) backend.Handler { return forbids{h} }
		holder, c := open(), on(t, b)
		polling := c.With(Polling(10 * time.Millisecond))
		lease := need(holder.Lock(t.Context(), "x"))(t)
		b.hook("Acquire", onceClosed(arrives))
		first := queued(t.Context(), c, "x")
		next := queued(t.Context(), polling, "x")
		close(arrives)
		wants(t, (<-first).err, errGone)
		synctest.Wait()
		must(t, lease.Unlock(t.Context()))
		must(t, next.lease(t).Unlock(t.Context()))
	})
}

// gated is a store whose acquisitions wait until the test lets them through.
type gated struct {
	*spy
	let       chan struct{}
	now, most atomic.Int32 // how many are under way, and the most at one time
}

func newGated() *gated {
	s := &gated{let: make(chan struct{}, 1)}
	s.let <- struct{}{}
	s.spy = spyOn(memory.New(), "", hooks{"Acquire": func(c *call) error {
		n := s.now.Add(1)
		defer s.now.Add(-1)
		for m := s.most.Load(); n > m && !s.most.CompareAndSwap(m, n); m = s.most.Load() {
		}
		<-s.let
		return c.run(c.ctx)
	}})
	return s
}

func TestABurstOfCallersIsSentWithinTheInFlightLimitAndDelaysNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newGated()
		c := on(t, s)
		held := need(c.Lock(t.Context(), "held"))(t)
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				noError(t, thenUnlock(c.Lock(t.Context(), fmt.Sprint(i))))
			})
		}
		synctest.Wait()
		close(s.let)
		wg.Wait()
		if n := s.most.Load(); n != 256 {
			t.Errorf("%d acquisitions were on their way at once, want %d", n, 256)
		}

		s.let = make(chan struct{})
		var failed atomic.Int32
		for i := range 256 + 10 {
			wg.Go(func() {
				l, err := c.Lock(t.Context(), fmt.Sprint(i))
				if err != nil {
					wants(t, err, ErrUnavailable)
					failed.Add(1)
					return
				}
				l.Unlock(t.Context())
			})
		}
		time.Sleep(2 * time.Minute)
		if n := failed.Load(); n != 10 {
			t.Errorf("%d callers were told that the store does not answer, want 10", n)
		}
		must(t, held.Err())
		close(s.let)
		wg.Wait()
		must(t, held.Unlock(t.Context()))
		must(t, c.Close())
	})
}

// BenchmarkErrWhileCallersLeave reports how long Err takes at the most while 100,000 callers, of a
// store that does not answer, leave at once.
func BenchmarkErrWhileCallersLeave(b *testing.B) {
	for range b.N {
		s := newGated()
		c := on(b, s)
		held := need(c.Lock(b.Context(), "held"))(b)
		ctx, cancel := context.WithCancel(b.Context())
		var wg, asked sync.WaitGroup
		for i := range 100_000 {
			wg.Add(1)
			asked.Add(1)
			go func() {
				defer wg.Done()
				asked.Done()
				c.Lock(ctx, fmt.Sprint(i))
			}()
		}
		asked.Wait()
		cancel()
		left := make(chan struct{})
		go func() { wg.Wait(); close(left) }()
		worst := time.Duration(0)
		for over := false; !over; {
			select {
			case <-left:
				over = true
			default:
			}
			start := time.Now()
			if err := held.Err(); err != nil {
				b.Fatal(err)
			}
			worst = max(worst, time.Since(start))
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric(float64(worst.Microseconds()), "us-worst-Err")
		close(s.let)
		c.Close()
	}
}

// A client without a subscription is told of no release, and its topics are not watched: a server at its maxclients has
// no room for the connection. Its waiters ask every five seconds.
func TestAWaiterWhoseTopicIsNotWatchedAsksBeforeTheHoldersLeaseEnds(t *testing.T) {
	for kind, of := range map[string]func(*Client) Locker{
		"plain": func(c *Client) Locker { return c },
		"write": func(c *Client) Locker { return c.RW().Write },
		"semaphore": func(c *Client) Locker {
			return fakeLocker(func(ctx context.Context, name string) (*Lease, error) {
				permit, err := semaphore.New(c, name, 1).Acquire(ctx, 1, WithLease(time.Hour))
				return NewLease(ctx, name, 0, permit.Release), err
			})
		},
	} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				b := spyOn(s, "Queue ReadWrite Semaphores Enrolments", nil)
				b.listen = func(backend.Handler) backend.Handler { return deaf{} }
				holder, c := of(open()), of(on(t, b))
				lease := need(holder.Lock(t.Context(), "n", WithLease(time.Hour)))(t)
				next := queued(t.Context(), c, "n")
				must(t, lease.Unlock(t.Context()))
				start := time.Now()
				next.lease(t)
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("it has the lock %v after the release", took)
				}
			})
		})
	}
}

// The rechecks of a client that waits for many names are far apart: without a subscription each waiter still asks when
// the holder's lease ends.
func TestAWaiterWhoseTopicIsNotWatchedAsksAtTheEndOfTheHoldersLeaseAlsoInACrowd(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "", nil)
		b.listen = func(backend.Handler) backend.Handler { return deaf{} }
		holder, c := open(), on(t, b)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 1000 {
			name := fmt.Sprint("n", i)
			need(holder.Lock(ctx, name, WithLease(time.Hour)))(t)
			go c.Lock(ctx, name)
		}
		synctest.Wait()
		need(holder.Lock(ctx, "x", WithLease(time.Second)))(t)
		start := time.Now()
		must(t, thenUnlock(c.Lock(ctx, "x")))
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it has the lock after %v", took)
		}
		cancel()
		synctest.Wait()
	})
}

// The first waiter leaves while a release that names it is under way, and the client is enrolled instead. The
// second waiter then asks at a recheck, though no message arrives.
func TestAWaiterBehindOneThatLeftAsksInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The store serves this client's waiter once, and then the queue, without a message: the subscription is
		// dead and does not show it.
		sent, answer, handed := make(chan struct{}), make(chan struct{}), false
		store := memory.New()
		under := need(store.Open(deaf{}))(t)
		b := spyOn(store, "Queue", hooks{"Serve": func(c *call) error {
			if !handed {
				handed = true
				return c.run(c.ctx)
			}
			close(sent)
			<-answer
			r := c.request.(backend.ServeRequest)
			reply, err := under.Release(c.ctx, backend.ReleaseRequest{Name: r.Name, Owner: r.Owner})
			*c.reply.(*backend.ServeReply) = backend.ServeReply{Held: reply.Held, Enrolled: true}
			return err
		}})
		b.listen = func(backend.Handler) backend.Handler { return deaf{} }
		c := on(t, b)
		ctx := context.Background()
		lease := need(c.Lock(ctx, "n"))(t)
		next := make(chan *Lease, 1)
		go func() {
			lease, err := c.Lock(ctx, "n")
			if err != nil {
				t.Errorf("the first: %v", err)
			}
			next <- lease
		}()
		synctest.Wait()
		first, leave := context.WithCancel(ctx)
		left := later(func() error { return errorOf(c.Lock(first, "n")) })
		synctest.Wait()
		got := later(func() error { return errorOf(c.Lock(ctx, "n")) })
		time.Sleep(250 * time.Millisecond) // otherwise no command is sent
		must(t, lease.Unlock(ctx))
		lease = <-next
		time.Sleep(250 * time.Millisecond)
		unlocked := later(func() error { return lease.Unlock(ctx) })
		<-sent
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who leaves: %v", err)
		}
		close(answer)
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock: %v", err)
		}
		select {
		case err := <-got:
			if err != nil {
				t.Errorf("the second: %v", err)
			}
		case <-time.After(2 * watchdogTimeout):
			t.Error("the second sleeps for ever")
		}
	})
}

// deafStore is a store whose sessions stop hearing what they are told, once stopped is set: as a stopped process does.
type deafStore struct {
	*memory.Store
	stopped *atomic.Bool
}

type deafEars struct {
	backend.Handler
	stopped *atomic.Bool
}

func (s deafStore) Open(h backend.Handler) (backend.Store, error) {
	return s.Store.Open(deafEars{h, s.stopped})
}

func (e deafEars) Released(t backend.Topic) {
	if !e.stopped.Load() {
		e.Handler.Released(t)
	}
}

func (e deafEars) Changed(t backend.Topic) {
	if !e.stopped.Load() {
		e.Handler.Changed(t)
	}
}

func (e deafEars) Granted(t backend.Topic, g backend.Grant) {
	if !e.stopped.Load() {
		e.Handler.(backend.QueueHandler).Granted(t, g)
	}
}

func (e deafEars) Reserved(t backend.Topic, n uint64) {
	if !e.stopped.Load() {
		e.Handler.(backend.QueueHandler).Reserved(t, n)
	}
}

func (e deafEars) First(t backend.Topic, n uint64, d time.Duration) {
	if !e.stopped.Load() {
		e.Handler.(backend.QueueHandler).First(t, n, d)
	}
}

func (e deafEars) Freed(t backend.Topic) {
	if !e.stopped.Load() {
		e.Handler.(backend.QueueHandler).Freed(t)
	}
}

func (e deafEars) Wanted(t backend.Topic, n uint64) {
	if !e.stopped.Load() {
		e.Handler.(backend.QueueHandler).Wanted(t, n)
	}
}

// A permit is kept for a stopped client, for a second. A client that comes within that second is to have it after that
// second ("a stopped client delays the others by a second").
func TestWhatIsKeptForAStoppedClientIsTheNextOnesAfterASecond(t *testing.T) {
	for _, kind := range []string{"counting semaphore", "semaphore", "write", "read"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, stopped := memory.New(), new(atomic.Bool)
				holder, dead, next := on(t, s), on(t, deafStore{s, stopped}), on(t, s)
				ctx := t.Context()
				take := func(c *Client) (func(), error) {
					switch kind {
					case "counting semaphore":
						x := semaphore.NewCounting(c, "x")
						return func() { must(t, x.Release(context.Background(), 1)) }, x.Acquire(ctx, 1)
					case "semaphore":
						p, err := semaphore.New(c, "x", 1).Acquire(ctx, 1)
						return func() { must(t, p.Release(context.Background())) }, err
					case "read":
						if c == next {
							l, err := c.RW().Read.Lock(ctx, "x")
							return func() { must(t, l.Unlock(context.Background())) }, err
						}
					}
					l, err := c.RW().Write.Lock(ctx, "x")
					return func() { must(t, l.Unlock(context.Background())) }, err
				}
				if kind == "counting semaphore" {
					need(semaphore.NewCounting(holder, "x").TrySetPermits(ctx, 1))(t)
				}
				release, err := take(holder)
				must(t, err)
				go take(dead)
				synctest.Wait()
				stopped.Store(true)
				release() // for a second it is kept for the client that is stopped
				start := time.Now()
				time.Sleep(100 * time.Millisecond)
				release, err = take(next)
				must(t, err)
				took := time.Since(start)
				if took > 1500*time.Millisecond {
					t.Errorf("it was kept for a second; the next client got it %v after the release", took)
				}
				release()
			})
		})
	}
}
