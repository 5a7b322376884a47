package examples

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

// TestWatchdogTimeoutsOfDocs holds docs/how-to/watchdog.md to its table: which outages a lease survives, whenever they
// begin, and which end it.
func TestWatchdogTimeoutsOfDocs(t *testing.T) {
	for _, watchdog := range []time.Duration{3 * time.Second, 10 * time.Second, 30 * time.Second, 2 * time.Minute} {
		for phase := range 6 {
			begin := watchdog + time.Duration(phase)*watchdog/18 // within a third of the timeout
			if err := afterOutage(t, watchdog, begin, watchdog*6/10); err != nil {
				t.Errorf("%v: an outage of 0.6 of it, from %v on: %v", watchdog, begin, err)
			}
			if err := afterOutage(t, watchdog, begin, watchdog); !errors.Is(err, mortise.ErrLost) {
				t.Errorf("%v: an outage as long, from %v on: %v", watchdog, begin, err)
			}
		}
	}
}

// afterOutage is what a lease says after the store was unavailable.
func afterOutage(t *testing.T, watchdog, begin, outage time.Duration) (err error) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		locks, newErr := mortise.New(store, mortise.WithWatchdogTimeout(watchdog))
		if newErr != nil {
			t.Fatal(newErr)
		}
		defer locks.Close()
		lease, lockErr := locks.Lock(t.Context(), "orders:42")
		if lockErr != nil {
			t.Fatal(lockErr)
		}
		defer lease.Unlock(t.Context())
		time.Sleep(begin)
		store.SetDown(errors.New("connection refused"))
		time.Sleep(outage)
		store.SetDown(nil)
		time.Sleep(watchdog)
		err = lease.Err()
	})
	return err
}
