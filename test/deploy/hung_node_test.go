package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// namesOn are names whose slots are one master's of a cluster.
func namesOn(c *redistest.Cluster, master, n int) (names []string) {
	masters := len(c.Masters)
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprint("name", i)
		slot := redisproto.Slot(name)
		if slot >= redistest.Slots*master/masters && slot < redistest.Slots*(master+1)/masters {
			names = append(names, name)
		}
	}
	return names
}

// One of three masters hangs: leases on the others are renewed as ever.
func TestAHungNodeLosesNoLeaseElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		const watchdog = 4 * time.Second
		c := redistest.StartCluster(t, 3)
		locks := ready(t, s.open(t, clustered(c)), mortise.WithWatchdogTimeout(watchdog))
		ctx := within(t, 4*patience)
		held := map[int][]*mortise.Lease{}
		for _, master := range []int{0, 1, 2} {
			for _, name := range namesOn(c, master, 5) {
				lease := harness.Must(lockUntilAvailable(ctx, locks, name))(t)
				held[master] = append(held[master], lease)
			}
		}
		c.Masters[0].Pause()
		t.Cleanup(c.Masters[0].Resume)
		for _, lease := range held[0] {
			ended(t, "a lease on the node that hangs is lost", failing(lease))
		}
		select { // until renewals elsewhere would have been given up, too
		case <-time.After(2 * watchdog):
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
		lost := 0
		for _, master := range []int{1, 2} {
			for _, lease := range held[master] {
				if err := lease.Err(); err != nil {
					lost++
					t.Log(err)
				}
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d leases on nodes that answer are lost", lost, len(held[1])+len(held[2]))
		}
	})
}

// failing sends nil when a lease is lost.
func failing(lease *mortise.Lease) <-chan error {
	lost := make(chan error, 1)
	context.AfterFunc(lease.Context(), func() {
		if err := lease.Err(); errors.Is(err, mortise.ErrLost) {
			lost <- nil
		} else {
			lost <- err
		}
	})
	return lost
}

// Callers of locks on a master that hangs do not hold up those of locks elsewhere.
func TestCallersAtAHungNodeHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		c := redistest.StartCluster(t, 3)
		locks := ready(t, s.open(t, clustered(c)))
		ctx := within(t, 4*patience)
		for _, name := range append(namesOn(c, 0, 1), append(namesOn(c, 1, 1), namesOn(c, 2, 1)...)...) { // each node has been reached
			lease := harness.Must(lockUntilAvailable(ctx, locks, name))(t)
			harness.OK(t, lease.Unlock(ctx))
		}
		c.Masters[0].Pause()
		t.Cleanup(c.Masters[0].Resume)
		hopeless, leave := context.WithCancel(ctx)
		var callers, asking sync.WaitGroup
		for _, name := range namesOn(c, 0, 400) {
			asking.Add(1)
			callers.Go(func() {
				asking.Done()
				if lease, err := locks.TryLock(hopeless, name); err == nil {
					t.Errorf("%s: locked at a node that hangs", lease.Name())
				}
			})
		}
		asking.Wait()
		for _, name := range append(namesOn(c, 1, 10), namesOn(c, 2, 10)...) {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			lease, err := locks.TryLock(soon, name)
			cancel()
			harness.FatalIf(t, err != nil, "beside 400 callers at a node that hangs: %v", err)
			harness.Check(t, lease.Unlock(ctx))
		}
		leave()
		callers.Wait()
	})
}
