//go:build unix

package redisproto_test

import (
	"errors"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/semaphore"
)

// On a full server permits are renewed as locks are, a fair waiter waits on and gets the lock when there is room again,
// and no other client is granted anything meanwhile.
func TestAFullServerTakesNothingFromItsHoldersAndWaiters(t *testing.T) {
	const watchdog = time.Second
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		t.Parallel()
		renewed := make(chan string, 100)
		c := check.Value(mortise.New(b, mortise.WithWatchdogTimeout(watchdog), mortise.WithObserver(mortise.Observer{
			Renewed: func(e mortise.Event) { renewed <- e.Name },
		}))).In(t)
		t.Cleanup(func() { _ = c.Close() })
		ctx := t.Context()
		fair := c.With(mortise.Fair())
		permit := check.Value(semaphore.New(c, "permits", 1).Acquire(ctx, 1)).In(t)
		held := check.Value(fair.Lock(ctx, "fair")).In(t)
		again := check.Value(fair.Lock(held.Context(), "fair")).In(t)
		do(t, srv, "CONFIG", "SET", "maxmemory", "1")
		waits := make(chan *mortise.Lease, 1)
		failed := make(chan error, 1)
		go func() {
			l, err := fair.Lock(ctx, "fair", mortise.WithWait(30*time.Second))
			waits <- l
			failed <- err
		}()
		late := time.After(20 * time.Second)
		for permits, locks := 0, 0; permits < 4 || locks < 4; { // more than a watchdog timeout
			select {
			case name := <-renewed:
				if name == "permits" {
					permits++
				} else {
					locks++
				}
			case <-late:
				t.Fatalf("%d renewals of the permit, %d of the lock", permits, locks)
			}
		}
		check.NoError(t, permit.Err())
		_, err := semaphore.New(c, "permits", 1).TryAcquire(ctx, 1)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrNotAcquired), "another permit: %v", err)
		_, err = c.TryLock(ctx, "free")
		check.ErrorIf(t, err == nil, "a free lock was granted")
		check.NoError(t, again.Unlock(ctx))
		check.NoError(t, permit.Release(ctx))
		select {
		case l := <-waits:
			t.Fatalf("the waiter has not waited: %v, %v", l, <-failed)
		default:
		}
		do(t, srv, "CONFIG", "SET", "maxmemory", "0")
		check.NoError(t, held.Unlock(ctx))
		l := <-waits
		check.NoError(t, <-failed)
		check.NoError(t, l.Unlock(ctx))
	})
}
