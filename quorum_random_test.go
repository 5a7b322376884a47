package mortise

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

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

// Stores are emptied, fail, come back and are slow at random, any number of them at a time: no
// two leases ever live at one time. Without the rejoin delay this fails.
func TestQuorumAtRandomHasOneHolder(t *testing.T) {
	for range 5 {
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
				quorum := need(Quorum(mine...))(t)
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
