package clienttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/quorum"
)

// trio is Quorum over three spies, which can as in spy. The client of the third hears of changes, or does not.
func trio(t *testing.T, hears bool, can ...string) (Locker, []*spy, []*Client) {
	t.Helper()
	var stores []*spy
	var clients []*Client
	for i := range 3 {
		s := spyOn(memory.New(), strings.Join(can, " "), nil)
		if i == 2 && !hears {
			s.listen = func(h backend.Handler) backend.Handler { return noHints{h} }
		}
		stores, clients = append(stores, s), append(clients, on(t, s))
	}
	return need(quorum.New(clients...))(t), stores, clients
}

// A store that drops each record at once, for example by eviction, is not locked again in a loop.
func TestQuorumAPartThatKeepsVanishingIsLockedAgainAfterPauses(t *testing.T) {
	for what, x := range map[string]struct{ hears, nested bool }{
		"the client hears of changes": {hears: true},
		"the client verifies":         {},
		"a re-entry":                  {hears: true, nested: true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quorum, stores, clients := trio(t, x.hears)
				evicts := stores[2]
				evicts.hook("Acquire", func(c *call) error {
					time.Sleep(time.Millisecond) // a round trip
					// A client that has no grant yet hears nothing of it.
					time.AfterFunc(time.Millisecond, func() { evicts.Delete("x") })
					err := c.run(c.ctx)
					if !x.hears {
						c.reply.(*backend.AcquireReply).VerifyAfter = 500 * time.Millisecond
					}
					return err
				})
				l := need(quorum.Lock(t.Context(), "x"))(t)
				leases := 1
				if x.nested {
					must(t, errorOf(quorum.Lock(l.Context(), "x")))
					leases++
				}
				asked := func(within time.Duration, want int) {
					t.Helper()
					time.Sleep(within)
					if n := evicts.take("Acquire"); n != want {
						t.Errorf("the store was asked %d times within %v, want %d", n, within, want)
					}
				}
				asked(2*time.Second, 2) // at first, and at once
				asked(time.Minute, 7)   // after 2, 4 and 8 s, and then each 10 s
				must(t, l.Err())
				again := func(within time.Duration) {
					t.Helper()
					time.Sleep(within)
					if n, mine := held(t, clients[2]); n != leases || !mine {
						t.Errorf("the store has %d holds (ours: %v) after %v, want %d", n, mine, within, leases)
					}
				}
				evicts.hook("Acquire", nil)
				again(12 * time.Second) // the loss is noticed within a second
				if x.hears {
					time.Sleep(10 * time.Second)
					evicts.Delete("x")
					again(time.Millisecond)
				}
			})
		})
	}
}

// The wait for a store that hangs does not outlast the grants of the others.
func TestQuorumALeaseShorterThanTheWaitForAStoreThatHangsIsGranted(t *testing.T) {
	for what, x := range map[string]struct {
		opt       Option
		roundTrip time.Duration
	}{
		"a short WithMaxHold":                     {WithMaxHold(100 * time.Millisecond), 0},
		"the shortest WithMaxHold":                {WithMaxHold(MinLease), 18 * time.Millisecond},
		"the shortest WithLease":                  {WithLease(MinLease), 15 * time.Millisecond},
		"WithMaxHold beyond the watchdog timeout": {WithMaxHold(time.Hour), 15 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // what hangs
				quorum, stores, _ := trio(t, true)
				for _, s := range stores[:2] {
					s.hook("Acquire", delayed(x.roundTrip))
				}
				stores[2].hook("Acquire", delayed(3*time.Second))
				l := need(quorum.TryLock(t.Context(), "x", x.opt))(t)
				must(t, l.Err())
				must(t, l.Unlock(t.Context()))
			})
		})
	}
}

// Stores that are far away answer in time for a lease with a short WithMaxHold, as for one with the watchdog timeout.
func TestQuorumOfDistantStoresGrantsAShortMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quorum, stores, _ := trio(t, true)
		for _, s := range stores {
			s.hook("Acquire", delayed(150*time.Millisecond))
		}
		l := need(quorum.TryLock(t.Context(), "x", WithMaxHold(time.Second)))(t)
		must(t, l.Err())
		must(t, l.Unlock(t.Context()))
	})
}

// The grants of a majority end while the call waits for the third store: no other owner holds the lock.
func TestQuorumGrantsThatEndedAreNoOtherOwner(t *testing.T) {
	for what, lock := range map[string]func(Locker) (*Lease, error){
		"TryLock": func(q Locker) (*Lease, error) { return q.TryLock(context.Background(), "x") },
		"Lock": func(q Locker) (*Lease, error) {
			return q.Lock(context.Background(), "x", WithWait(50*time.Millisecond))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quorum, stores, clients := trio(t, true)
				stores[2].hook("Acquire", func(*call) error {
					time.Sleep(10 * time.Millisecond)
					for _, c := range clients[:2] {
						sleepMachine(c, time.Minute)
					}
					time.Sleep(50 * time.Millisecond)
					return &backend.Fault{Err: errGone}
				})
				_, err := lock(quorum)
				wants(t, err, ErrUnavailable)
				if errors.Is(err, ErrNotAcquired) || !contains(err.Error(), "2 of 3 stores granted the lock") {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}

// LockAll knows the defaults of the first client of a part of Quorum, as it knows those of its own parts.
func TestAPartOfQuorumHasThePrefixAndTheDefaultsOfTheFirstClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quorum := func(stores []*memory.Store, opts ...ClientOption) Locker {
			var clients []*Client
			for _, s := range stores {
				clients = append(clients, on(t, s, append(opts, quorum.WithRejoinDelay(0), WithPrefix("p:"))...))
			}
			return need(quorum.New(clients...))(t)
		}
		stores, other := []*memory.Store{memory.New(), memory.New(), memory.New()}, memory.New()
		var stop atomic.Bool
		busy := func(l Locker, name string) {
			for !stop.Load() {
				x, err := l.Lock(t.Context(), name)
				if t.Context().Err() != nil {
					return // the test has failed: its own error counts
				}
				must(t, err)
				time.Sleep(700 * time.Millisecond)
				must(t, x.Unlock(context.Background()))
			}
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { busy(quorum(stores), "a") })
			all.Go(func() { busy(on(t, other), "b") })
		}
		time.Sleep(time.Second)
		brief := quorum(stores, WithDefaults(WithMaxHold(400*time.Millisecond)))
		l := need(Parts{}.And(brief, "a").And(on(t, other), "b").Lock(t.Context(), WithWait(5*time.Minute)))(t)
		if l.Name() != "p:a + b" {
			t.Errorf("the name is %q", l.Name())
		}
		must(t, l.Unlock(t.Context()))
		stop.Store(true)
		all.Wait()
	})
}

// The repeat of a part is for the same owner, and counts within the time that Quorum has for the store. A call that may
// wait asks again, for a new owner, before a time-out that is longer than this time.
func TestQuorumAPartIsRepeatedAfterATimeOut(t *testing.T) {
	for what, x := range map[string]struct {
		timeOut time.Duration
		owners  int // in each store
		lock    func(q Locker) (*Lease, error)
	}{
		"TryLock, a short time-out": {300 * time.Millisecond, 1, func(q Locker) (*Lease, error) {
			return q.TryLock(context.Background(), "x")
		}},
		"Lock, a short time-out": {300 * time.Millisecond, 1, func(q Locker) (*Lease, error) {
			return q.Lock(context.Background(), "x", WithWait(2*time.Second))
		}},
		"Lock, the time-out of go-redis": {goRedisTimeout, 2, func(q Locker) (*Lease, error) {
			return q.Lock(context.Background(), "x", WithWait(2*time.Second))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // what goes on in the background ends in the bubble
				quorum, stores, clients := trio(t, true, "Age")
				must(t, thenUnlock(quorum.Lock(t.Context(), "y"))) // the stores have their votes from here on
				owners := make([]string, len(stores))              // of the requests of a store, without repeats
				for i, s := range stores {
					s.take("Acquire")
					var mu sync.Mutex
					s.hook("Acquire", func(c *call) error {
						mu.Lock()
						first := owners[i] == ""
						if o := c.request.(backend.AcquireRequest).Owner; !contains(owners[i], o) {
							owners[i] += o + " "
						}
						mu.Unlock()
						if first {
							time.Sleep(x.timeOut)
							return unknownOutcome()
						}
						return c.run(c.ctx)
					})
				}
				began := time.Now()
				l, err := x.lock(quorum)
				if err != nil {
					t.Fatalf("after %v: %v", time.Since(began), err)
				}
				must(t, l.Err())
				synctest.Wait()
				for i, s := range stores {
					if n := s.take("Acquire"); n != 2 || len(strings.Fields(owners[i])) != x.owners {
						t.Errorf("store %d: %d requests for the owners %q, want 2 for %d", i, n, owners[i], x.owners)
					}
				}
				must(t, l.Unlock(t.Context()))
				time.Sleep(time.Minute)
				for i, c := range clients {
					if n, _ := held(t, c); n != 0 {
						t.Errorf("store %d still has %d holds", i, n)
					}
				}
			})
		})
	}
}

// A call that waits for longer than its Quorum trusts a store keeps its place there while it asks the others.
func TestCallsOfQuorumThatHoldForLongTakeTurns(t *testing.T) {
	for _, callers := range []int{3, 5} {
		t.Run(fmt.Sprint(callers, " callers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores := []*memory.Store{memory.New(), memory.New(), memory.New()}
				held, waited := make([]int, callers), make([]time.Duration, callers)
				var all sync.WaitGroup
				for i := range callers {
					var clients []*Client
					for _, s := range stores {
						clients = append(clients, on(t, s, quorum.WithRejoinDelay(0)))
					}
					locks := need(quorum.New(clients...))(t)
					all.Go(func() {
						for begin := time.Now(); time.Since(begin) < 5*time.Minute; held[i]++ {
							asked := time.Now()
							l, err := locks.Lock(t.Context(), "x")
							if noError(t, err); err != nil {
								return
							}
							waited[i] = max(waited[i], time.Since(asked))
							time.Sleep(700 * time.Millisecond)
							noError(t, l.Unlock(t.Context()))
						}
					})
				}
				all.Wait()
				t.Logf("holds %v, longest waits %v", held, waited)
				// A caller is passed over by each other one three times at most.
				most, longest := slices.Max(held), 3*time.Duration(callers)*700*time.Millisecond
				if slices.Min(held) < most*3/4 || slices.Max(waited) > longest {
					t.Errorf("the callers held the lock %v times, and waited for %v at most", held, waited)
				}
			})
		})
	}
}

// A store that refuses to queue a caller, as of a user without its channels, is not the one that the caller waits in.
func TestQuorumWaitsWhereItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, stores, _ := trio(t, true, "Queue")
		var others []*Client
		for _, s := range stores {
			others = append(others, on(t, s))
		}
		waits := need(quorum.New(others...))(t)
		var refused atomic.Int32
		stores[0].hook("Acquire", func(c *call) error {
			if stores[0].entry.Swap(0) != 0 { // the call asks for a place
				refused.Add(1)
				return &backend.Fault{Err: errGone}
			}
			return c.run(c.ctx)
		})
		for range 5 {
			l := need(locks.Lock(t.Context(), "x"))(t)
			got := begin(t.Context(), waits, "x")
			time.Sleep(3 * time.Second)
			must(t, handedOn(t, l, got, 10*time.Millisecond).Unlock(t.Context()))
		}
		if refused.Load() == 0 {
			t.Error("the first store was not asked for a place")
		}
	})
}
