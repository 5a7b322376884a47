package property

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// These are quick, to be repeated: go test -race -run Context -count=200

// onEach runs a test on each store, all at once.
func onEach(t *testing.T, what string, test func(t *testing.T, s *store)) {
	for _, s := range openStores(t) {
		t.Run(what+s.label, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

func TestGoroutinesThatShareALeasesContextTakeTurns(t *testing.T) {
	onEach(t, "", func(t *testing.T, s *store) {
		c := newClient(t, s)
		name := s.key(fresh() + "n")
		outer := harness.Must(c.Lock(t.Context(), name))(t)
		var (
			in, entered atomic.Int64
			wg          sync.WaitGroup
			start       = make(chan struct{})
		)
		// enter is what each goroutine does with the context that all have.
		enter := func(lock func() (*mortise.Lease, error)) (ok bool) {
			l, err := lock()
			if errors.Is(err, mortise.ErrNotAcquired) {
				return false
			}
			if err != nil {
				t.Errorf("entering again: %v", err)
				return true
			}
			n := in.Add(1)
			harness.ErrorIf(t, n != 1, "%d goroutines are in at once", n)
			entered.Add(1)
			// A holder may enter again, with the context of its own lease.
			inner, err := c.TryLock(l.Context(), name)
			if err != nil {
				t.Errorf("entering a third time: %v", err)
			} else if err := inner.Unlock(context.Background()); err != nil {
				t.Errorf("unlocking that: %v", err)
			}
			in.Add(-1)
			harness.Checkf(t, l.Unlock(context.Background()), "Unlock")
			return true
		}
		const goroutines, times = 4, 3
		for i := range goroutines {
			wg.Go(func() {
				<-start
				for range times {
					if i%2 == 0 {
						enter(func() (*mortise.Lease, error) { return c.Lock(outer.Context(), name, mortise.WithWait(soon)) })
						continue
					}
					try := func() (*mortise.Lease, error) { return c.TryLock(outer.Context(), name) }
					for end := time.Now().Add(soon); !enter(try); {
						if time.Now().After(end) {
							t.Errorf("TryLock was refused for %v", soon)
							return
						}
						time.Sleep(100 * time.Microsecond)
					}
				}
			})
		}
		close(start)
		wg.Wait()
		n := entered.Load()
		harness.ErrorIf(t, n != goroutines*times, "entered %d times, want %d", n, goroutines*times)
		st, err := c.Inspect(t.Context(), name)
		harness.ErrorIf(t, err != nil || st.Holds != 1, "the outer lease alone should be left: %+v, %v", st, err)
		harness.Check(t, outer.Unlock(t.Context()))
		if st, err := c.Inspect(t.Context(), name); err != nil || st.Held {
			t.Errorf("after the last Unlock: %+v, %v", st, err)
		}
	})
}

func TestAContextKeptPastItsLeaseConfersNothing(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, s *store, l *mortise.Lease){
		"unlocked": func(t *testing.T, _ *store, l *mortise.Lease) {
			harness.Check(t, l.Unlock(t.Context()))
		},
		"expired": func(t *testing.T, _ *store, l *mortise.Lease) {
			await(t, "the lease is over", func() bool { return errors.Is(l.Err(), mortise.ErrLost) })
		},
		// Where the holder is not told, it believes that it holds the lock: then its
		// context must not work either.
		"deleted": func(_ *testing.T, s *store, l *mortise.Lease) { s.remove(l.Name()) },
	} {
		onEach(t, how+" on ", func(t *testing.T, s *store) {
			c, other := newClient(t, s), newClient(t, s)
			name := s.key(fresh() + how)
			var opts []mortise.Option
			if how == "expired" {
				opts = append(opts, mortise.WithLease(mortise.MinLease))
			}
			var l *mortise.Lease
			await(t, "a lease before it is over", func() (ok bool) {
				var err error
				if l, err = c.Lock(t.Context(), name, opts...); err != nil && !errors.Is(err, mortise.ErrUnavailable) {
					t.Fatal(err)
				}
				return err == nil
			})
			kept := context.WithoutCancel(l.Context())
			end(t, s, l)

			// Another has the lock: the kept context is no way in.
			theirs, err := other.Lock(t.Context(), name, mortise.WithWait(soon))
			harness.FatalIf(t, err != nil, "%s: the lock should be free: %v", how, err)
			before := harness.Must(other.Inspect(t.Context(), name))(t)
			for range 2 { // the first try may be how the client learns that it lost the lock
				if l, err := c.TryLock(kept, name); err == nil {
					t.Errorf("%s: TryLock with the kept context got in beside another holder: %v", how, l.Err())
				}
			}
			// A machine that is too busy to ask in that time has no answer: ErrUnavailable.
			_, err = c.Lock(kept, name, mortise.WithWait(5*time.Millisecond))
			harness.ErrorIf(t, !errors.Is(err, mortise.ErrNotAcquired) && !errors.Is(err, mortise.ErrUnavailable),
				"%s: Lock with the kept context: %v, want ErrNotAcquired", how, err)
			after, err := other.Inspect(t.Context(), name)
			harness.ErrorIf(t, err != nil || after.Owner != before.Owner || after.Holds != 1,
				"%s: the other's record was %+v and is %+v, %v", how, before, after, err)
			harness.Checkf(t, theirs.Err(), "%s: the other holder", how)
			harness.Checkf(t, theirs.Unlock(t.Context()), "%s: the other's Unlock", how)

			// It is free: the kept context is as good as any, and its owner is new.
			mine, err := c.Lock(kept, name, mortise.WithWait(soon))
			harness.FatalIf(t, err != nil, "%s: Lock of a free name with the kept context: %v", how, err)
			st, err := c.Inspect(t.Context(), name)
			harness.ErrorIf(t, err != nil || st.Holds != 1 || !st.Mine,
				"%s: it should be held once, by a new owner: %+v, %v", how, st, err)
			harness.Checkf(t, mine.Unlock(t.Context()), "%s", how)
		})
	}
}

// On stores that can tell a holder of a deletion, its lease ends at once. A lease that
// is not renewed hears of it in no other way.
func TestAHolderIsToldOfADeletionWhateverItDidBefore(t *testing.T) {
	for what, before := range map[string]func(t *testing.T, c *mortise.Client, l *mortise.Lease) *mortise.Lease{
		"acquired":  func(_ *testing.T, _ *mortise.Client, l *mortise.Lease) *mortise.Lease { return l },
		"reentered": reenter,
		"inner unlocked": func(t *testing.T, c *mortise.Client, l *mortise.Lease) *mortise.Lease {
			harness.Check(t, reenter(t, c, l).Unlock(t.Context()))
			return l
		},
		"outer unlocked": func(t *testing.T, c *mortise.Client, l *mortise.Lease) *mortise.Lease {
			inner := reenter(t, c, l)
			harness.Check(t, l.Unlock(t.Context()))
			return inner
		},
		"another refused": func(t *testing.T, c *mortise.Client, l *mortise.Lease) *mortise.Lease {
			harness.CheckIs(t, harness.Err(c.TryLock(t.Context(), l.Name())), mortise.ErrNotAcquired)
			return l
		},
	} {
		onEach(t, what+" on ", func(t *testing.T, s *store) {
			if !s.tells {
				return
			}
			c := newClient(t, s)
			l := harness.Must(c.Lock(t.Context(), s.key(fresh()+what), mortise.WithLease(time.Minute)))(t)
			last := before(t, c, l)
			s.remove(l.Name())
			await(t, what+", then deleted: the lease is lost", func() bool { return errors.Is(last.Err(), mortise.ErrLost) })
		})
	}
}

func reenter(t *testing.T, c *mortise.Client, l *mortise.Lease) *mortise.Lease {
	inner := harness.Must(c.TryLock(context.WithoutCancel(l.Context()), l.Name(), mortise.WithLease(time.Minute)))(t)
	return inner
}
