package clienttest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

func TestTheWatchdogRenewsEveryThirdOfItsTimeoutForHours(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		renewed := 0
		c := open(WithObserver(Observer{Renewed: func(e Event) { renewed++ }}))
		l := need(c.Lock(t.Context(), "x"))(t)
		time.Sleep(3*time.Hour + time.Second)
		must(t, l.Err())
		synctest.Wait()
		if renewed != 3*360 {
			t.Errorf("renewed %d times in 3 h, want one every 10 s", renewed)
		}
		must(t, l.Unlock(t.Context()))
		wants(t, context.Cause(l.Context()), ErrReleased)
		time.Sleep(time.Hour)
		synctest.Wait()
		if renewed != 3*360 {
			t.Errorf("renewed after the release")
		}
	})
}

func TestRenewalIsRetriedWithinTheLeaseWhileTheStoreIsUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		failed := 0
		c := open(WithObserver(Observer{RenewalFailed: func(e Event) {
			failed++
			if e.Remaining <= 0 || e.Err == nil {
				t.Errorf("%+v", e)
			}
		}}))
		l := need(c.Lock(t.Context(), "x"))(t)
		time.Sleep(9 * time.Second)
		s.SetDown(errors.New("gone"))
		time.Sleep(15 * time.Second)
		must(t, l.Err())
		s.SetDown(nil)
		time.Sleep(time.Hour)
		must(t, l.Err())
		synctest.Wait()
		if failed < 5 {
			t.Errorf("renewal was tried %d times in 14 s", failed)
		}

		s.SetDown(errors.New("gone"))
		start := time.Now()
		<-l.Context().Done()
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("lost after %v, want within the lease", d)
		}
		wants(t, l.Err(), ErrLost)
		s.SetDown(nil)
	})
}

// Each connection for messages that breaks makes a client verify its leases. While renewals fail, the retry does that.
// The hold that wanted renewals has ended after one failed: no retry is planned that could ask in place of the
// verification.
func TestALeaseWhoseRenewalsEndedWithAFailureIsVerified(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		var handler backend.Handler
		b := spyOn(s, "", hooks{"Renew": func(*call) error { return errGone }})
		b.listen = func(h backend.Handler) backend.Handler { handler = h; return h }
		c := on(t, b)
		outer := need(c.Lock(t.Context(), "x", WithLease(time.Hour)))(t)
		inner := need(c.Lock(outer.Context(), "x"))(t)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		b.hook("Renew", nil)
		must(t, inner.Unlock(t.Context()))
		s.Flush()
		handler.ChangedAll()
		synctest.Wait()
		wants(t, outer.Err(), ErrLost)
	})
}

func TestInterruptionsOfTheSessionDoNotHastenTheRetriesOfARenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var handler backend.Handler
		b := spyOn(s, "", hooks{"Renew": func(*call) error { return errGone }})
		b.listen = func(h backend.Handler) backend.Handler {
			handler = h
			return h
		}
		l := need(on(t, b).Lock(t.Context(), "x"))(t)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := b.take("Renew"); n != 1 {
			t.Fatalf("renewed %d times in 10 s", n)
		}
		for range 300 {
			handler.ChangedAll()
			time.Sleep(10 * time.Millisecond)
		}
		if n := b.take("Renew"); n > 6 {
			t.Errorf("renewed %d times in 3 s, want pauses of 100 ms to 1 s", n)
		}
		b.hook("Renew", nil)
		time.Sleep(time.Hour)
		must(t, l.Err())
	})
}

func TestWallClockJumpEndsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		l := need(c.Lock(t.Context(), "x"))(t)
		sleepMachine(c, time.Hour)
		wants(t, l.Err(), ErrLost)
	})
}

// A machine that slept past the end of a lease: the context ends within a second of waking, though
// the lease's next renewal, or its end, is far away on the monotonic clock.
func TestAContextEndsWithinASecondOfTheMachineWaking(t *testing.T) {
	for name, opts := range map[string][]Option{
		"renewed":      nil,
		"WithLease":    {WithLease(10 * time.Hour)},
		"WithMaxHold":  {WithMaxHold(10 * time.Hour)},
		"held of many": nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				c := open()
				l := need(c.Lock(t.Context(), "x", opts...))(t)
				if name == "held of many" {
					for i := range 1000 {
						must(t, errorOf(c.Lock(t.Context(), fmt.Sprint(i), WithLease(24*time.Hour))))
					}
				}
				time.Sleep(2500 * time.Millisecond)
				must(t, l.Err())
				sleepMachine(c, 11*time.Hour)
				woke := time.Now()
				<-l.Context().Done()
				if d := time.Since(woke); d > time.Second {
					t.Errorf("the context ended %v after waking", d)
				}
				wants(t, context.Cause(l.Context()), ErrLost)
			})
		})
	}
}

// A machine slept through the most of a lease: the context ends when the lease does.
func TestAContextEndsWithItsLeaseAfterAMachineSleptThroughMostOfIt(t *testing.T) {
	for name, opt := range map[string]Option{
		"WithLease": WithLease(10 * time.Hour), "WithMaxHold": WithMaxHold(10 * time.Hour),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				c := open(WithWatchdogTimeout(20 * time.Hour))
				l := need(c.Lock(t.Context(), "x", opt))(t)
				time.Sleep(2500 * time.Millisecond)
				sleepMachine(c, 9*time.Hour)
				time.Sleep(time.Hour + time.Second)
				wants(t, context.Cause(l.Context()), ErrLost)
			})
		})
	}
}

// A watchdog lease of which a machine slept through two thirds is renewed at once.
func TestALeaseIsRenewedAtOnceAfterAMachineSlept(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		renewed := 0
		c := open(WithObserver(Observer{Renewed: func(Event) { renewed++ }}))
		must(t, errorOf(c.Lock(t.Context(), "x")))
		time.Sleep(2500 * time.Millisecond)
		sleepMachine(c, 20*time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		if renewed != 1 {
			t.Errorf("%d renewals in the second after waking", renewed)
		}
	})
}

// A clock that is set back and forth ends no lease.
func TestAWallClockThatIsSetBackEndsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		l := need(c.Lock(t.Context(), "x"))(t)
		time.Sleep(2 * time.Second)
		sleepMachine(c, -time.Hour)
		time.Sleep(time.Hour)
		must(t, l.Err())
		must(t, l.Context().Err())
		must(t, l.Unlock(t.Context()))
	})
}

// A renewal after a machine slept counts: by the monotonic clock the lease that it makes ends before the one that the
// machine slept through.
func TestALeaseThatIsRenewedAfterAMachineSleptLastsAsLongAsItsRenewal(t *testing.T) {
	for name, x := range map[string]struct {
		act   func(t *testing.T, c *Client) *Lease
		lasts time.Duration // after the sleep, at least
	}{
		"WithMaxHold": {func(t *testing.T, c *Client) *Lease {
			l := need(c.Lock(t.Context(), "x", WithMaxHold(time.Minute)))(t)
			time.Sleep(28500 * time.Millisecond)
			sleepMachine(c, 20*time.Second)
			return l
		}, 10 * time.Second},
		"re-entry": {func(t *testing.T, c *Client) *Lease {
			l := need(c.Lock(t.Context(), "x", WithLease(time.Hour)))(t)
			sleepMachine(c, time.Hour-time.Minute)
			time.Sleep(2 * time.Second)
			return need(c.Lock(l.Context(), "x", WithLease(5*time.Minute)))(t)
		}, 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				l := x.act(t, open())
				time.Sleep(x.lasts)
				must(t, l.Err())
				must(t, l.Context().Err())
				must(t, l.Unlock(t.Context()))
			})
		})
	}
}

// A machine that slept while a request for the lock was under way: the first renewal is in time by the wall clock.
func TestALeaseThatWasAcquiredWhileAMachineSleptIsRenewedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		spy := spyOn(s, "", nil)
		c := on(t, spy)
		must(t, errorOf(c.Lock(t.Context(), "other"))) // a client without leases does not look at the clocks
		spy.hook("Acquire", func(x *call) error {
			err := x.run(x.ctx)
			sleepMachine(c, 22*time.Second)
			time.Sleep(2 * time.Second)
			return err
		})
		l := need(c.Lock(t.Context(), "x"))(t)
		time.Sleep(20 * time.Second)
		must(t, l.Err())
		must(t, l.Unlock(t.Context()))
	})
}

// A renewal may wait for as long as the lease lasts: in the Redis client for a connection, or for a store that hangs.
func TestALeaseThatEndsWhileItsRenewalHasNoAnswerTellsOfTheRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		var events []string
		spy := spyOn(s, "", hooks{"Renew": func(*call) error { time.Sleep(time.Minute); return errGone }})
		c := on(t, spy, WithObserver(Observer{
			RenewalFailed: func(e Event) { events = append(events, e.Err.Error()) },
			Lost:          func(e Event) { events = append(events, "lost") },
		}))
		l := need(c.Lock(t.Context(), "x"))(t)
		<-l.Context().Done()
		wants(t, l.Err(), ErrLost)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(events) != 2 || !contains(events[0], "no answer") || events[1] != "lost" {
			t.Errorf("the events are %q", events)
		}
		if err := l.Err(); !contains(err.Error(), "no answer") {
			t.Errorf("the cause is %v", err)
		}
	})
}
