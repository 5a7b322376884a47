package clienttest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// failed is a hook of a call that may have had its effect, and that another is not to repeat.
func failed(*call) error { return &backend.Fault{Err: errGone, MayHaveRun: true} }

// After an outage, acquisitions of unknown outcome are compensated as long as they could take effect: often at
// first, then rarely.
func TestAcquisitionsOfUnknownOutcomeAreCompensatedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		releases := 0
		c := on(t, spyOn(memory.New(), "", hooks{"Acquire": failed, "Release": func(c *call) error {
			if releases++; !c.request.(backend.ReleaseRequest).Undo {
				t.Error("the store is asked to announce what it may not find")
			}
			return c.run(t.Context())
		}}))
		wants(t, errorOf(c.Lock(t.Context(), "x", WithLease(10*time.Minute))), ErrUnavailable)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if releases < 20 || releases > 40 {
			t.Errorf("%d releases in the ten minutes of the lease, want one each half minute and some at first", releases)
		}
	})
}

// A release that failed is repeated until it is answered, and not once more.
func TestAReleaseThatFailedIsRepeatedUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		releases := 0
		c := on(t, spyOn(memory.New(), "", hooks{"Release": func(c *call) error {
			if releases++; releases <= 10 {
				return replyLost(c)
			}
			return c.run(t.Context())
		}}))
		l := need(c.Lock(t.Context(), "x", WithLease(10*time.Minute)))(t)
		wants(t, l.Unlock(t.Context()), ErrUnavailable)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if releases != 11 {
			t.Errorf("%d releases were sent, want ten whose replies are lost and one that is answered", releases)
		}
	})
}

// An acquisition that arrives after the release that failed is found, though what
// compensates for the release was answered.
func TestAnAcquisitionThatArrivesAfterAFailedReleaseIsReleased(t *testing.T) {
	for range 40 {
		bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
			var late func()
			var down atomic.Bool
			n := 0
			c := on(t, spyOn(s, "", hooks{"Acquire": func(c *call) error {
				if n++; n == 1 {
					late = func() { c.run(context.Background()) }
					return unknownOutcome()
				}
				return c.run(context.Background())
			}, "Release": func(c *call) error {
				if down.Load() {
					return &backend.Fault{Err: errGone, Temporary: true}
				}
				return c.run(context.Background())
			}}))
			l := need(c.Lock(t.Context(), "x", WithLease(10*time.Minute)))(t)
			down.Store(true)
			wants(t, l.Unlock(t.Context()), ErrUnavailable)
			down.Store(false)
			time.Sleep(5 * time.Second)
			late()
			time.Sleep(2 * time.Minute)
			st := need(c.Inspect(t.Context(), "x"))(t)
			if st.Held {
				t.Fatal("an acquisition that arrived late is left behind")
			}
		})
		if t.Failed() {
			return
		}
	}
}

// An acquisition of a fair lock that arrives late is found within a twentieth of its lease, however long its
// place would be kept.
func TestAFairAcquisitionOfUnknownOutcomeIsCompensatedWithinATwentiethOfItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		var longest time.Duration
		c := on(t, spyOn(memory.New(), "Fair", hooks{"Fair.Acquire": failed, "Fair.Leave": func(c *call) error {
			if !last.IsZero() {
				longest = max(longest, time.Since(last))
			}
			last = time.Now()
			return c.run(t.Context())
		}}))
		fair := c.With(Fair())
		wants(t, errorOf(fair.Lock(t.Context(), "x", WithLease(10*time.Minute), WithWait(24*time.Hour))), ErrUnavailable)
		time.Sleep(time.Hour)
		synctest.Wait()
		if longest == 0 || longest > 10*time.Minute/20 {
			t.Errorf("not looked for in %v", longest)
		}
	})
}

// A grant that comes after its caller has left is released for the next waiter. That is no release of a foreign client,
// for which the store would leave the lock to foreign clients that do not exist.
func TestACompensatedReleaseIsNotTakenForThatOfAForeignClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "Queue", nil)
		c := on(t, b)
		l := need(open().Lock(t.Context(), "x"))(t)
		ctx, leave := context.WithCancel(t.Context())
		first, second := make(chan error), make(chan error)
		go func() { first <- errorOf(c.Lock(ctx, "x", WithLease(time.Hour))) }() // asks for more than a grant by a message
		synctest.Wait()
		go func() { second <- errorOf(c.Lock(t.Context(), "x")) }()
		time.Sleep(time.Second)
		var answered atomic.Int32
		b.hook("Acquire", func(c *call) error {
			err := c.run(context.Background())
			if answered.Add(1) == 1 {
				time.Sleep(100 * time.Millisecond)
			}
			return err
		})
		b.take("Release")
		must(t, l.Unlock(t.Context()))
		time.Sleep(50 * time.Millisecond)
		leave()
		wants(t, <-first, context.Canceled)
		must(t, <-second)
		time.Sleep(time.Second)
		if heard := b.heard.Load(); heard > 0 || answered.Load() == 0 || b.take("Release") != 1 {
			t.Errorf("%d requests say that a foreign client released", heard)
		}
	})
}

// See rule 9 of package backendtest.
func TestAnAbandonedGrantIsReleasedHoweverLongTheStoreIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		c := on(t, spyOn(st, "", hooks{"Acquire": func(c *call) error {
			err := c.run(context.Background())
			time.Sleep(100 * time.Millisecond)
			st.SetDown(errGone)
			return err
		}}))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wants(t, errorOf(c.Lock(ctx, "x", WithLease(10*time.Minute))), context.DeadlineExceeded)
		time.Sleep(2 * watchdogTimeout)
		st.SetDown(nil)
		time.Sleep(10 * time.Second)
		state := need(on(t, st).Inspect(t.Context(), "x"))(t)
		if state.Held {
			t.Errorf("held by nobody for another %v", state.Remaining)
		}
	})
}

// An outage holds the request for a lock, and its compensation, up for longer than the lease, and then the compensation
// arrives first: the lock is released all the same, and does not stay until the end of the late request's lease.
func TestARequestThatAnOutageHeldUpForLongerThanItsLeaseIsReleased(t *testing.T) {
	for name, answers := range map[string]bool{"no answer": false, "failures": true} {
		for _, kind := range []Option{{}, Fair()} {
			t.Run(fmt.Sprint(name, ", fair ", kind == Fair()), func(t *testing.T) { heldUp(t, kind, answers) })
		}
	}
}

func heldUp(t *testing.T, kind Option, answers bool) {
	const lease, outage = 2 * time.Second, 5 * time.Second
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var late atomic.Pointer[call]
		over := time.Now().Add(outage)
		acquire := func(k *call) error { late.Store(k); return unknownOutcome() }
		release := func(k *call) error {
			if time.Now().Before(over) {
				if answers {
					return &backend.Fault{Err: errGone, Temporary: true}
				}
				time.Sleep(time.Until(over))
			}
			return k.run(context.Background())
		}
		c := on(t, spyOn(s, "Fair", hooks{
			"Acquire": acquire, "Fair.Acquire": acquire, "Release": release, "Fair.Leave": release,
		}))
		l := c.With(kind)
		wants(t, errorOf(l.Lock(t.Context(), "x", WithLease(lease), WithWait(time.Second))), ErrUnavailable)
		time.Sleep(time.Until(over) + 10*time.Millisecond)
		if answers {
			time.Sleep(time.Second) // the longest pause between two releases
		}
		must(t, late.Load().run(context.Background()))
		time.Sleep(1500 * time.Millisecond)
		must(t, thenUnlock(open().TryLock(t.Context(), "x")))
	})
}

// A client without waiters takes its entry out of a lock's queue, also if the store did not answer for a while: the
// entry would stay for as long as the lock is held.
func TestAnEntryLeavesTheQueueAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		need(open().Lock(t.Context(), "x"))(t)
		failures, heals := 0, time.Now().Add(10*time.Second)
		c := on(t, spyOn(s, "Queue Operator", hooks{"Leave": func(c *call) error {
			if time.Now().Before(heals) {
				failures++
				return unknownOutcome()
			}
			return c.run(t.Context())
		}}))
		ctx, cancel := context.WithCancel(t.Context())
		w := queued(ctx, c, "x")
		before := need(c.Inspect(t.Context(), "x"))(t).Waiters
		cancel()
		<-w
		time.Sleep(time.Until(heals.Add(2 * time.Second)))
		synctest.Wait()
		if after := need(c.Inspect(t.Context(), "x"))(t).Waiters; before != 1 || after != 0 || failures == 0 {
			t.Errorf("%d entries in the queue, then %d; %d requests failed", before, after, failures)
		}
	})
}
