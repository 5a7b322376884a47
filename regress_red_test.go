package mortise

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// A store that was locked again does not revive a lease whose majority was gone before that
// store counted, though nobody looked in between.
func TestRedAHealedStoreRevivesNothing(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		// What keeps a client's time stands still while its observer does.
		stuck := Observer{Lost: func(e LostEvent) {
			if e.Name == "stuck" {
				time.Sleep(20 * time.Second)
			}
		}}
		a, clients := open(WithWatchdogTimeout(time.Second), WithObserver(stuck))
		l, err := a.Lock(t.Context(), "x")
		must(t, err)
		stores[0].Flush()
		stores[1].Flush()
		synctest.Wait() // they are locked again, and do not count yet
		for i := range 2 {
			if n, mine := held(t, clients[i]); n != 1 || !mine {
				t.Fatalf("store %d has %d holds (ours: %v)", i, n, mine)
			}
		}
		must(t, l.Err())
		_, err = clients[2].Lock(t.Context(), "stuck", WithLease(MinLease))
		must(t, err)
		time.Sleep(MinLease)
		stores[2].SetDown(errGone) // its part is over in a second, the others are young for three
		time.Sleep(countsAfter + 2*time.Second)
		wants(t, l.Err(), ErrLost)
		wants(t, context.Cause(l.Context()), ErrLost)
		stores[2].SetDown(nil)
		wants(t, l.Unlock(t.Context()), ErrNotHeld)
	})
}
