package mortise

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

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
		wants(t, l.Unlock(t.Context()), ErrNotHeld)
	})
}

// standStill stops what keeps c's time, as a pause of its process would.
func standStill(c *Client, d time.Duration) {
	c.engine.Probe().OnTimers(func() { time.Sleep(d) })
	synctest.Wait()
}
