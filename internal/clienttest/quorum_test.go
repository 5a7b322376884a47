package clienttest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/quorum"
)

// fleet is Quorum over five stores, for as many processes as asked for.
func fleet(t *testing.T, f func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client))) {
	synctest.Test(t, func(t *testing.T) {
		var stores []*memory.Store
		for range 5 {
			stores = append(stores, memory.New())
		}
		f(t, stores, func(opts ...ClientOption) (Locker, []*Client) {
			var clients []*Client
			for _, s := range stores {
				c := on(t, s, opts...)
				clients = append(clients, c)
			}
			quorum := need(quorum.New(clients...))(t)
			return quorum, clients
		})
	})
}

// Stores are emptied, fail, come back and are slow at random, any number of them at a time: no
// two leases ever live at one time. Without the rejoin delay this test fails.
func TestQuorumAtRandomHasOneHolder(t *testing.T) {
	times := 5
	if testing.Short() {
		times = 2
	}
	for range times {
		synctest.Test(t, func(t *testing.T) {
			var most atomic.Int64
			stores := make([]*memory.Store, 3+2*rand.IntN(2))
			for i := range stores {
				stores[i] = memory.New()
			}
			var (
				mu      sync.Mutex
				holder  = -1
				holds   int
				wg      sync.WaitGroup
				clients []*Client
			)
			end := time.Now().Add(5 * time.Minute)
			for who := range 4 {
				mine := make([]*Client, len(stores))
				for i, s := range stores {
					c := on(t, laggard(s, &most), WithWatchdogTimeout(4*time.Second))
					mine[i] = c
				}
				clients = append(clients, mine...)
				quorum := need(quorum.New(mine...))(t)
				wg.Go(func() {
					for time.Now().Before(end) {
						l, err := quorum.Lock(context.Background(), "x", WithWait(time.Second+rand.N(20*time.Second)))
						if err != nil {
							if !errors.Is(err, ErrNotAcquired) && !errors.Is(err, ErrUnavailable) {
								t.Error(err)
							}
							continue
						}
						stay := rand.N(100 * time.Millisecond)
						if rand.IntN(4) == 0 {
							stay = rand.N(15 * time.Second)
						}
						var inner *Lease
						if rand.IntN(3) == 0 {
							inner, _ = quorum.TryLock(l.Context(), "x")
						}
						mu.Lock()
						if l.Err() == nil {
							if holder >= 0 {
								t.Errorf("%d has it, and %d still", who, holder)
							}
							holder = who
							holds++
							mu.Unlock()
							select {
							case <-l.Context().Done():
							case <-time.After(stay):
							}
							mu.Lock()
							holder = -1
						}
						mu.Unlock()
						if inner != nil {
							inner.Unlock(context.Background())
						}
						l.Unlock(context.Background())
					}
				})
			}
			for time.Now().Before(end) {
				time.Sleep(rand.N(3 * time.Second))
				s := stores[rand.IntN(len(stores))]
				switch rand.IntN(6) {
				case 0, 1:
					s.Flush()
				case 2:
					s.SetDown(errGone)
				case 3, 4:
					s.SetDown(nil)
				case 5:
					most.Store(rand.Int64N(2) * rand.Int64N(int64(1500*time.Millisecond)))
				}
			}
			wg.Wait()
			if holds == 0 {
				t.Error("nobody ever had it")
			}
			over, cancel := context.WithCancel(context.Background())
			cancel()
			for _, c := range clients {
				c.Shutdown(over)
			}
			time.Sleep(time.Minute) // what was late
		})
	}
}

func TestQuorumSurvivesTwoOfFiveAndEndsWithThree(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, _ := open()
		b, _ := open()
		l := need(a.Lock(t.Context(), "x"))(t)
		stores[0].SetDown(errGone)
		stores[3].SetDown(errGone)
		time.Sleep(5 * time.Minute)
		must(t, l.Err())
		must(t, l.Context().Err())
		wants(t, errorOf(b.TryLock(t.Context(), "x")), ErrNotAcquired)
		must(t, thenUnlock(b.Lock(t.Context(), "y")))

		stores[4].SetDown(errGone)
		start := time.Now()
		<-l.Context().Done()
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("lost after %v, want within the lease", d)
		}
		wants(t, l.Err(), ErrLost)
		wants(t, context.Cause(l.Context()), ErrLost)
		wants(t, errorOf(b.Lock(t.Context(), "y")), ErrUnavailable)
		for _, i := range []int{0, 3, 4} {
			stores[i].SetDown(nil)
		}
		wants(t, l.Unlock(t.Context()), ErrLost)
		must(t, thenUnlock(b.Lock(t.Context(), "x", WithWait(time.Minute))))
	})
}

func TestQuorumHealsAStoreThatCameBackEmpty(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, clients := open()
		l := need(a.Lock(t.Context(), "x"))(t)
		held := func(i int) bool {
			st := need(clients[i].Inspect(t.Context(), "x"))(t)
			return st.Held && st.Mine
		}
		for i, s := range stores { // one after the other: a majority is always there
			s.Flush()
			time.Sleep(11 * time.Second)
			if !held(i) {
				t.Errorf("store %d was not locked again within a renewal", i)
			}
			must(t, l.Err())
		}
		stores[2].SetDown(errGone)
		time.Sleep(time.Minute)
		stores[2].SetDown(nil)
		time.Sleep(11 * time.Second)
		if !held(2) {
			t.Error("a store that was away was not locked again")
		}
		must(t, l.Unlock(t.Context()))
		synctest.Wait()
		for i := range stores {
			if held(i) {
				t.Errorf("store %d is locked after the Unlock", i)
			}
		}
	})
}

func TestQuorumEntersAgainAndExcludesOthers(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, clients := open()
		b, _ := open()
		l := need(a.Lock(t.Context(), "x"))(t)
		m := need(a.Lock(l.Context(), "x"))(t)
		st := need(clients[1].Inspect(t.Context(), "x"))(t)
		if st.Holds != 2 {
			t.Errorf("%d holds", st.Holds)
		}
		wants(t, errorOf(a.TryLock(t.Context(), "x")), ErrNotAcquired)
		must(t, m.Unlock(t.Context()))
		wants(t, errorOf(b.TryLock(t.Context(), "x")), ErrNotAcquired)
		must(t, l.Unlock(t.Context()))
		wants(t, l.Unlock(t.Context()), ErrReleased)
		must(t, thenUnlock(b.TryLock(t.Context(), "x")))
	})
}

func TestQuorumUnderContentionHasOneHolderAndMakesProgress(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		var in atomic.Int32
		var wg sync.WaitGroup
		for range 3 {
			quorum, _ := open()
			for range 3 {
				wg.Go(func() {
					for range 10 {
						l, err := quorum.Lock(t.Context(), "x", WithWait(10*time.Minute))
						if err != nil {
							t.Error(err)
							return
						}
						if in.Add(1) != 1 {
							t.Error("two in")
						}
						time.Sleep(time.Millisecond)
						in.Add(-1)
						noError(t, l.Unlock(t.Context()))
					}
				})
			}
		}
		wg.Wait()
	})
}

func TestQuorumRefusesWhatCannotVote(t *testing.T) {
	a, b := newClient(t), newClient(t)
	for _, clients := range [][]*Client{nil, {a}, {a, b}, {a, b, nil}, {a, b, a}} {
		wants(t, errorOf(quorum.New(clients...)), ErrInvalid)
	}
	quorum := need(quorum.New(a, b, newClient(t)))(t)
	wants(t, errorOf(quorum.Lock(t.Context(), "")), ErrInvalidName)
	wants(t, errorOf(quorum.TryLock(t.Context(), "x", WithWait(1))), ErrInvalid)
}

func TestQuorumAStoreThatLostItsDataHasNoVoteUntilAllItsLeasesAreOver(t *testing.T) {
	lostVote(t, nil, func(t *testing.T, a, b Locker, l *Lease) {
		wants(t, errorOf(b.TryLock(t.Context(), "x")), ErrNotAcquired)
		m := need(b.Lock(t.Context(), "x"))(t)
		wants(t, l.Err(), ErrLost)
		must(t, m.Unlock(t.Context()))
	})
}

func TestQuorumWithoutTheRuleTwoGetIn(t *testing.T) {
	lostVote(t, []ClientOption{quorum.WithRejoinDelay(0)}, func(t *testing.T, a, b Locker, l *Lease) {
		m := need(b.TryLock(t.Context(), "x"))(t)
		must(t, l.Err()) // both: what the rule is for
		must(t, m.Unlock(t.Context()))
	})
}

func TestQuorumOnStoresThatAllLostTheirDataWaitsForTheLongestLease(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, _ := open()
		for _, s := range stores {
			s.Flush()
		}
		start := time.Now()
		for _, lock := range []func() (*Lease, error){
			func() (*Lease, error) { return a.TryLock(t.Context(), "x") },
			func() (*Lease, error) { return a.Lock(t.Context(), "x", WithWait(10*time.Second)) },
		} {
			_, err := lock()
			wants(t, err, ErrUnavailable)
			says := err.Error()
			if errors.Is(err, ErrNotAcquired) || !contains(says, "5 of 5 stores are new") || contains(says, "holder") {
				t.Errorf("the error is %v", err)
			}
		}
		l := need(a.Lock(t.Context(), "x"))(t)
		if d := time.Since(start); d < 30*time.Second || d > 32*time.Second {
			t.Errorf("locked after %v, want about 30s", d)
		}
		must(t, l.Unlock(t.Context()))
	})
}

// A part that was healed while its store has no vote counts only after a while.
func TestQuorumAHealedStoreCountsAfterTheRejoinDelay(t *testing.T) {
	for pause, lost := range map[time.Duration]bool{time.Second: true, 4 * time.Second: false} {
		fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
			a, clients := open()
			l := need(a.Lock(t.Context(), "x"))(t)
			stores[0].SetDown(errGone)
			stores[1].SetDown(errGone)
			time.Sleep(31 * time.Second) // the leases of those parts have ended
			must(t, l.Err())
			stores[0].SetDown(nil)
			stores[0].Flush()
			for _, mine := held(t, clients[0]); !mine; _, mine = held(t, clients[0]) {
				time.Sleep(100 * time.Millisecond)
			}
			time.Sleep(pause)
			stores[2].Delete("x") // the client notices at once
			synctest.Wait()
			if got := l.Err() != nil; got != lost {
				t.Errorf("a third store fails %v after one was locked again: %v", pause, l.Err())
			}
		})
	}
}

func TestQuorumReentriesAreHealedAfterWhatTheyEntered(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, clients := open()
		leases := make([]*Lease, 3)
		ctx := t.Context()
		for i := range leases {
			l := need(a.Lock(ctx, "x"))(t)
			leases[i], ctx = l, l.Context()
		}
		for round := range 10 {
			i := round % len(stores)
			stores[i].Flush()
			time.Sleep(11 * time.Second)
			if n, mine := held(t, clients[i]); n != len(leases) || !mine {
				t.Fatalf("round %d: store %d has %d holds (ours: %v) after a renewal, not %d", round, i, n, mine, len(leases))
			}
		}
		// The middle one ends while a store is away: the inner one is healed without it.
		stores[4].SetDown(errGone)
		time.Sleep(time.Minute)
		must(t, leases[1].Unlock(t.Context()))
		stores[4].SetDown(nil)
		time.Sleep(11 * time.Second)
		if n, mine := held(t, clients[4]); n != 2 || !mine {
			t.Errorf("%d holds (ours: %v), want 2", n, mine)
		}
		must(t, leases[2].Unlock(t.Context()))
		must(t, leases[0].Unlock(t.Context()))
		synctest.Wait()
		for i, c := range clients {
			if n, _ := held(t, c); n != 0 {
				t.Errorf("store %d has %d holds after the Unlocks", i, n)
			}
		}
	})
}

func TestQuorumAWaiterMovesOnWhenTheStoreItWaitsInFails(t *testing.T) {
	for what, fail := range map[string]func(s *memory.Store, c *Client){
		"the store":  func(s *memory.Store, c *Client) { s.SetDown(errGone) },
		"the client": func(s *memory.Store, c *Client) { c.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
				a, _ := open()
				b, clients := open()
				l := need(a.Lock(t.Context(), "x"))(t)
				got := begin(t.Context(), b, "x")
				time.Sleep(10 * time.Second)
				fail(stores[0], clients[0])
				fail(stores[1], clients[1])
				time.Sleep(10 * time.Second)
				m := handedOn(t, l, got, 2*time.Second)
				must(t, m.Err())
				must(t, m.Unlock(t.Context()))
			})
		})
	}
}

// handedOn unlocks l, and returns the lease of the waiter, which gets the lock within d.
func handedOn(t *testing.T, l *Lease, got waiter, d time.Duration) *Lease {
	t.Helper()
	start := time.Now()
	must(t, l.Unlock(t.Context()))
	m := got.lease(t)
	if took := time.Since(start); took > d {
		t.Errorf("it got the lock %v after the release", took)
	}
	return m
}

// An owner that has the lock in the first store alone, for example a dead one, does not keep a waiter from the releases
// of the majority's.
func TestQuorumAWaiterHearsOfAReleaseBehindARecordInAMinority(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		must(t, errorOf(on(t, stores[0]).Lock(t.Context(), "x", WithLease(time.Hour))))
		a, _ := open()
		b, _ := open()
		for range 5 {
			l := need(a.Lock(t.Context(), "x"))(t)
			got := begin(t.Context(), b, "x")
			time.Sleep(3 * time.Second)
			must(t, handedOn(t, l, got, 10*time.Millisecond).Unlock(t.Context()))
		}
	})
}

func TestQuorumWithoutAMajorityNamesWhatFailed(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, clients := open()
		for _, i := range []int{1, 2, 4} {
			stores[i].SetDown(errGone)
		}
		start := time.Now()
		lock, tryLock := errorOf(a.Lock(t.Context(), "x")), errorOf(a.TryLock(t.Context(), "x"))
		for op, err := range map[string]error{"lock": lock, "trylock": tryLock} {
			wants(t, err, ErrUnavailable)
			wants(t, err, errGone)
			for _, says := range []string{
				op + ` "x"`, "2 of 5 stores answered, 3 are needed", "store 1: ", "store 2: ", "store 4: ",
			} {
				if !contains(err.Error(), says) {
					t.Errorf("%v does not say %q", err, says)
				}
			}
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("it took %v", d)
		}
		synctest.Wait()
		for _, i := range []int{0, 3} {
			if n, _ := held(t, clients[i]); n != 0 {
				t.Errorf("store %d was left with %d holds", i, n)
			}
		}
		// A call that waits already outlasts the outage, as long as a lease lives.
		for _, i := range []int{1, 2, 4} {
			stores[i].SetDown(nil)
		}
		l := need(a.Lock(t.Context(), "x"))(t)
		b, _ := open()
		got := later(func() error { return thenUnlock(b.Lock(t.Context(), "x")) })
		time.Sleep(5 * time.Second)
		for _, i := range []int{1, 2, 4} {
			stores[i].SetDown(errGone)
		}
		time.Sleep(20 * time.Second)
		for _, i := range []int{1, 2, 4} {
			stores[i].SetDown(nil)
		}
		time.Sleep(5 * time.Second)
		must(t, l.Unlock(t.Context()))
		must(t, <-got)
	})
}

func TestQuorumClosedOrWrongKindInAMajorityIsNotUnavailable(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, clients := open()
		for _, i := range []int{0, 2, 3} {
			stores[i].Occupy("x")
		}
		_, err := a.Lock(t.Context(), "x")
		wants(t, err, ErrWrongKind)
		if errors.Is(err, ErrUnavailable) {
			t.Errorf("%v is ErrUnavailable too", err)
		}
		l := need(a.Lock(t.Context(), "y"))(t)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range clients[:3] {
			c.Shutdown(over)
		}
		<-l.Context().Done()
		wants(t, l.Err(), ErrClosed)
		wants(t, errorOf(a.Lock(t.Context(), "z")), ErrClosed)
	})
}

// Parts can end as soon as they are acquired: the lease that they make up is complete by then. The race detector sees
// one that is not, in one of ten runs.
func TestQuorumALeaseMayEndAtOnce(t *testing.T) {
	for range 50 {
		fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
			q, _ := open()
			time.AfterFunc(time.Minute, func() {
				for _, s := range stores {
					s.SetDown(errGone)
				}
			})
			l := need(q.Lock(t.Context(), "x"))(t)
			time.Sleep(2 * time.Minute)
			wants(t, l.Err(), ErrLost)
			if !contains(l.Err().Error(), `lease "x"`) {
				t.Errorf("an error without the lock's name: %v", l.Err())
			}
		})
	}
}

// The parts of a lost lease would otherwise block other processes until its Unlock.
func TestQuorumReleasesWhatIsLeftOfALostLease(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, clients := open()
		l := need(a.Lock(t.Context(), "x"))(t)
		for _, i := range []int{0, 1, 2} {
			stores[i].SetDown(errGone)
		}
		<-l.Context().Done()
		synctest.Wait()
		for _, i := range []int{3, 4} {
			if n, _ := held(t, clients[i]); n != 0 {
				t.Errorf("store %d has %d holds", i, n)
			}
		}
		err := l.Unlock(t.Context())
		wants(t, err, ErrLost)
		wants(t, err, ErrLost)
	})
}

func TestQuorumACallerThatLeavesLeavesNothingBehind(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, _ := open()
		b, clients := open()
		for i := range 50 {
			var l *Lease
			if i%2 == 0 {
				l = need(a.Lock(t.Context(), "x"))(t)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*i)*time.Millisecond)
			m, err := b.Lock(ctx, "x")
			if err == nil { // the caller's context ends no lease
				<-ctx.Done()
				must(t, m.Err())
				must(t, m.Unlock(t.Context()))
			} else {
				wants(t, err, context.DeadlineExceeded)
			}
			cancel()
			if l != nil {
				must(t, l.Unlock(t.Context()))
			}
			synctest.Wait()
			for j, c := range clients {
				if n, _ := held(t, c); n != 0 {
					t.Fatalf("after %d: store %d has %d holds", i, j, n)
				}
			}
		}
	})
}

func TestQuorumACallerThatLeavesDoesNotWaitForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // what hangs
		var clients []*Client
		for i := range 3 {
			b := unaware(memory.New())
			clients = append(clients, on(t, b))
			if i == 0 {
				b.hook("Release", delayed(3*time.Second))
			} else {
				must(t, errorOf(on(t, b.Store).Lock(t.Context(), "x")))
			}
		}
		quorum := need(quorum.New(clients...))(t)
		ctx, leave := context.WithCancel(t.Context())
		start := time.Now()
		w := queued(ctx, quorum, "x") // a majority is held; what the first store granted is being given back
		time.Sleep(10 * time.Millisecond)
		leave()
		wants(t, (<-w).err, context.Canceled)
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("the caller left after 10ms and is told after %v", took)
		}
	})
}

// bare is a lease in the first three of five stores, and what the Release of the first does. The other two come back.
func bare(t *testing.T, release func(*call) error) (stores []*spy, l *Lease) {
	var clients []*Client
	for range 5 {
		s := unaware(memory.New())
		stores, clients = append(stores, s), append(clients, on(t, s))
	}
	for _, s := range stores[3:] {
		s.SetDown(errGone)
	}
	l = need(need(quorum.New(clients...))(t).Lock(t.Context(), "x", WithLease(20*time.Second)))(t)
	for _, s := range stores[3:] {
		s.SetDown(nil)
	}
	stores[0].hook("Release", release)
	return stores, l
}

func TestQuorumUnlockDoesNotWaitForAStoreWhileAMajorityIsWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // what hangs
		_, l := bare(t, delayed(15*time.Second))
		start := time.Now()
		must(t, l.Unlock(t.Context()))
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("four of five stores are without the lock, and Unlock takes %v", took)
		}
	})
}

func TestQuorumUnlockOfALeaseThatWasLostUnnoticedSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores, l := bare(t, nil)
		must(t, errorOf(on(t, stores[0].Store).ForceUnlock(t.Context(), "x", "")))
		must(t, l.Err())
		wants(t, l.Unlock(t.Context()), ErrLost)
	})
}

// The stores are asked from goroutines of their own, where a panic would end the process. What the call got in the
// other stores is given back first.
func TestQuorumAPanicOfTheObserverReachesTheCaller(t *testing.T) {
	tryLock := func(t *testing.T, q Locker) {
		panics(t, func() { _, _ = q.TryLock(context.Background(), "x") })
	}
	unlock := func(t *testing.T, q Locker) {
		l := need(q.Lock(t.Context(), "x"))(t)
		panics(t, func() { _ = l.Unlock(context.Background()) })
	}
	boom := Observer{Released: func(Event) { panic("boom") }}
	for what, x := range map[string]struct {
		observer Observer // of the client of the second store
		held     []int    // the stores in which another owner holds the lock
		call     func(*testing.T, Locker)
	}{
		"Acquired":              {Observer{Acquired: func(Event) { panic("boom") }}, nil, tryLock},
		"NotAcquired":           {Observer{NotAcquired: func(Event) { panic("boom") }}, []int{1}, tryLock},
		"Released":              {boom, nil, unlock},
		"Released by the round": {boom, []int{0, 2}, tryLock},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mine, theirs []*Client
				for i := range 3 {
					s, o := memory.New(), Observer{}
					if i == 1 {
						o = x.observer
					}
					mine = append(mine, on(t, s, quorum.WithRejoinDelay(0), WithObserver(o)))
					theirs = append(theirs, on(t, s, quorum.WithRejoinDelay(0)))
				}
				var held []*Lease
				for _, i := range x.held {
					held = append(held, need(theirs[i].Lock(t.Context(), "x"))(t))
				}
				x.call(t, need(quorum.New(mine...))(t))
				synctest.Wait()
				for _, l := range held {
					must(t, l.Unlock(t.Context()))
				}
				for i, c := range theirs {
					noError(t, thenUnlock(c.TryLock(t.Context(), "x")))
					if s := engineOf(mine[i]).Probe().Snapshot(); s != (engine.Snapshot{}) {
						t.Errorf("store %d: left: %+v", i, s)
					}
				}
			})
		})
	}
}

// A call of Quorum waits in the first store, behind a Lock of the same client. It cannot claim what that store keeps
// for the client's entry.
func TestQuorumNothingIsKeptForAWaiterBehindOneThatLeft(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		holder, _ := open()
		quorum, clients := open()
		other := on(t, stores[0])
		l := need(holder.Lock(t.Context(), "x"))(t)
		ctx, leave := context.WithCancel(t.Context())
		first := queued(ctx, clients[0], "x")
		second := queued(t.Context(), quorum, "x")
		next := queued(t.Context(), other, "x")
		leave()
		wants(t, (<-first).err, context.Canceled)
		synctest.Wait()
		must(t, l.Unlock(t.Context()))
		start := time.Now()
		must(t, next.lease(t).Unlock(t.Context()))
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("the lock was free for %v", took)
		}
		must(t, second.lease(t).Unlock(t.Context()))
	})
}

func TestQuorumRefusesLeasesThatOutliveAStoresStay(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, _ := open()
		_, err := a.Lock(t.Context(), "x", WithLease(31*time.Second))
		wants(t, err, ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), "WithRejoinDelay(31s)") {
			t.Errorf("%v has no remedy", err)
		}
		for _, opt := range []ClientOption{quorum.WithRejoinDelay(time.Minute), quorum.WithRejoinDelay(0)} {
			b, _ := open(opt)
			must(t, thenUnlock(b.Lock(t.Context(), "x", WithLease(31*time.Second))))
		}
	})
	var clients []*Client
	for range 3 {
		c := on(t, memory.New(), quorum.WithRejoinDelay(29*time.Second))
		clients = append(clients, c)
	}
	wants(t, errorOf(quorum.New(clients...)), ErrInvalid)
	for _, d := range []time.Duration{-1, MaxLease + 1} {
		wants(t, errorOf(New(memory.New(), quorum.WithRejoinDelay(d))), ErrInvalid)
	}
	for _, scope := range []string{"", "a\nb", "\xff", strings.Repeat("x", 257)} {
		wants(t, errorOf(New(memory.New(), quorum.WithRejoinScope(scope))), ErrInvalid)
	}
}

// Calls that contend do not hold a minority for as long as dead stores take to fail.
func TestQuorumContendersDoNotWaitForDeadStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backends := make([]backend.Backend, 5)
		for i := range backends {
			backends[i] = memory.New()
			if i == 1 || i == 4 {
				backends[i] = spyOn(memory.New(), "", hooks{"Acquire": func(*call) error {
					time.Sleep(100 * time.Millisecond)
					return &backend.Fault{Err: errGone}
				}})
			}
		}
		const contenders, holds = 3, 20
		start := time.Now()
		var wg sync.WaitGroup
		for range contenders {
			var clients []*Client
			for _, b := range backends {
				c := on(t, b)
				clients = append(clients, c)
			}
			quorum := need(quorum.New(clients...))(t)
			wg.Go(func() {
				for range holds {
					l, err := quorum.Lock(t.Context(), "x")
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					noError(t, l.Unlock(t.Context()))
				}
			})
		}
		wg.Wait()
		if d := time.Since(start) / (contenders * holds); d > 50*time.Millisecond {
			t.Errorf("%v for each hold of a millisecond", d)
		} else {
			t.Logf("%v for each hold of a millisecond", d)
		}
		time.Sleep(time.Second) // for the dead stores' last answers
	})
}

// A store that was locked again does not revive a lease whose majority was gone before that
// store counted, though no call looked in between.
func TestQuorumAHealedStoreRevivesNothing(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		a, clients := open(WithWatchdogTimeout(time.Second))
		l := need(a.Lock(t.Context(), "x"))(t)
		stores[0].Flush()
		stores[1].Flush()
		synctest.Wait() // they are locked again, and do not count yet
		for i := range 2 {
			if n, mine := held(t, clients[i]); n != 1 || !mine {
				t.Fatalf("store %d has %d holds (ours: %v)", i, n, mine)
			}
		}
		must(t, l.Err())
		standStill(clients[2], 20*time.Second)
		stores[2].SetDown(errGone) // its part is over in a second, the others are young for three
		time.Sleep(3*time.Second + 2*time.Second)
		wants(t, l.Err(), ErrLost)
		wants(t, context.Cause(l.Context()), ErrLost)
		stores[2].SetDown(nil)
		wants(t, l.Unlock(t.Context()), ErrLost)
	})
}

func TestQuorumEndsAtItsMaxHoldAlsoAfterHealing(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		quorum, _ := open()
		start := time.Now()
		l := need(quorum.Lock(t.Context(), "x", WithMaxHold(time.Minute)))(t)
		for i := range 3 {
			time.Sleep(15 * time.Second)
			stores[i].Flush()
		}
		select {
		case <-l.Context().Done():
		case <-time.After(time.Hour):
		}
		if d := time.Since(start); d > 61*time.Second {
			t.Errorf("ended after %v, want a minute", d)
		}
		wants(t, l.Err(), ErrLost)
	})
}

// unaware is a store whose client hears of no change.
func unaware(s *memory.Store) *spy {
	b := spyOn(s, "Age", nil)
	b.listen = func(h backend.Handler) backend.Handler { return noHints{h} }
	return b
}

type noHints struct{ backend.Handler }

func (noHints) Changed(backend.Topic) {}

func (noHints) ChangedAll() {}

// A holds 0, 1, 2 of 0 to 4; 2 comes back empty: with 2, 3, 4 B would have a majority.
func lostVote(t *testing.T, opts []ClientOption, check func(t *testing.T, a, b Locker, l *Lease)) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		clients := make([]*Client, len(stores))
		for i, s := range stores {
			c := on(t, unaware(s), opts...)
			clients[i] = c
		}
		a := need(quorum.New(clients...))(t)
		b, _ := open(opts...)
		stores[3].SetDown(errGone)
		stores[4].SetDown(errGone)
		l, err := a.Lock(t.Context(), "x", WithLease(25*time.Second)) // which heals nothing
		must(t, err)
		stores[3].SetDown(nil)
		stores[4].SetDown(nil)
		wants(t, errorOf(b.TryLock(t.Context(), "x")), ErrNotAcquired)
		time.Sleep(time.Second)
		stores[2].Flush()
		check(t, a, b, l)
	})
}

// laggard is a store whose commands and answers are late, now and then by up to most, and
// sometimes lost. Its client hears of no change.
func laggard(s *memory.Store, most *atomic.Int64) *spy {
	late := func() {
		d := 2 * time.Millisecond
		if rand.IntN(3) == 0 {
			d = max(d, time.Duration(most.Load()))
		}
		time.Sleep(rand.N(d))
	}
	slow := func(c *call) error {
		late()
		defer late()
		return c.run(c.ctx)
	}
	b := unaware(s)
	b.hooks = hooks{"Renew": slow, "Release": slow, "Acquire": func(c *call) error {
		err := slow(c)
		if rand.IntN(20) == 0 {
			return unknownOutcome()
		}
		return err
	}}
	return b
}
