package mortise

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/announce"
)

// sleepMachine has d pass on the wall clock only, as a machine that sleeps does.
func sleepMachine(c *Client, d time.Duration) { c.engine.Clock.Sleep(d) }

// A machine that slept past the end of a lease: the context ends within a second of waking, though
// the lease's next renewal, or its end, is far away on the monotonic clock.
func TestAContextEndsWithinASecondOfWaking(t *testing.T) {
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
		c := open(WithObserver(Observer{Renewed: func(RenewedEvent) { renewed++ }}))
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

// A slow handler delays neither leases nor calls; what it cannot be told is counted in the log.
func TestEventsBeyondTheQueueAreDroppedAndCounted(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		log, lines := recorder()
		free := make(chan struct{})
		told := 0
		c := open(WithLogger(log), WithObserver(Observer{Lost: func(LostEvent) { <-free; told++ }}))
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

// What concerns many leases is one line a second, with their number.
func TestTheLogSumsUpWhatConcernsManyLeases(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		log, lines := recorder()
		c := open(WithLogger(log))
		const leases = 2000
		for i := range leases {
			must(t, errorOf(c.Lock(t.Context(), fmt.Sprint(i))))
		}
		time.Sleep(9 * time.Second)
		s.SetDown(errors.New("gone"))
		time.Sleep(12 * time.Second)
		got := lines()
		if len(got) < 5 || len(got) > 13 {
			t.Errorf("%d lines in 12 s, of %d leases whose renewals fail; want one a second", len(got), leases)
		}
		for _, line := range got[1:] {
			if !contains(line, "leases=") || !contains(line, "renewal failed") || !contains(line, "gone") {
				t.Errorf("%q", line)
			}
		}
		time.Sleep(time.Minute)
		// Renewals that failed in the last second may be summed up in the same instant.
		got = lines()
		if last := got[len(got)-2:]; !contains(strings.Join(last, "\n"), "lease ended without Unlock") {
			t.Errorf("the last lines are %q", last)
		}
	})
}

// Shutdown has all told, and says so of a handler that does not return.
func TestShutdownWaitsForHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var mu sync.Mutex
		told := 0
		c := open(WithObserver(Observer{Lost: func(LostEvent) {
			time.Sleep(2 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			told++
		}}))
		must(t, errorOf(c.Lock(t.Context(), "x", WithLease(MinLease))))
		time.Sleep(time.Second)
		must(t, c.Shutdown(t.Context()))
		if told != 1 {
			t.Errorf("%d events were told before Shutdown returned", told)
		}

		free := make(chan struct{})
		c = open(WithObserver(Observer{Lost: func(LostEvent) { <-free }}))
		for _, name := range []string{"x", "y"} {
			must(t, errorOf(c.Lock(t.Context(), name, WithLease(MinLease))))
		}
		time.Sleep(time.Second)
		start := time.Now()
		err := c.Close()
		wants(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("Close took %v", d)
		}
		if !contains(err.Error(), "1 events wait") {
			t.Error(err)
		}
		close(free)
		synctest.Wait()
	})
}

// A lease that ends as Lock was asked is no warning.
func TestALeaseThatEndsAsAskedIsNoWarning(t *testing.T) {
	for name, opt := range map[string]Option{"WithLease": WithLease(time.Second), "WithMaxHold": WithMaxHold(time.Minute)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				log, lines := recorder()
				c := open(WithLogger(log))
				l := need(c.Lock(t.Context(), "x", opt))(t)
				<-l.Context().Done()
				wants(t, l.Err(), ErrLost)
				if err := l.Err(); !contains(err.Error(), name) || contains(err.Error(), "paused") {
					t.Error(err)
				}
				synctest.Wait()
				if got := lines(); len(got) != 0 {
					t.Errorf("the log, above DEBUG, says %q", got)
				}
			})
		})
	}
}

func contains(s, part string) bool { return strings.Contains(s, part) }

// A second Shutdown ends the waiting of the first also for handlers.
func TestASecondShutdownEndsTheWaitingOfTheFirstForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		c := on(t, memory.New(), WithObserver(Observer{Lost: func(LostEvent) { <-free }}))
		must(t, errorOf(c.Lock(t.Context(), "x", WithLease(time.Hour))))
		first := make(chan error, 1)
		go func() { first <- c.Shutdown(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go c.Shutdown(ctx)
		select {
		case <-first:
		case <-time.After(time.Minute):
			t.Error("Shutdown waits on after the second's ctx ended")
		}
		close(free)
		synctest.Wait()
	})
}

// A handler that ends its goroutine, as testing.T.FailNow does, ends no other's telling.
func TestAHandlerThatEndsItsGoroutineEndsNoTelling(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		told := 0
		c := open(WithObserver(Observer{Lost: func(LostEvent) {
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
