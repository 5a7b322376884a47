package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/retry"
)

const (
	// limit bounds how many acquisitions are on their way to a node at once. 256 are enough to fill a connection. The
	// bound keeps a burst of callers from delaying the renewals of held leases in the client library's queue.
	limit = 256
	// replicaLimit bounds acquisitions that wait for replicas. They have slots of their own, so replicas that do not
	// answer delay no other acquisition.
	replicaLimit = 64
)

// limiter is an in-flight limiter: a channel with a slot for each acquisition on its way.
type limiter chan struct{}

// limits are the limiters: two for each node of the store, one of them for acquisitions that wait for replicas.
type limits struct {
	one limiter  // for a store of one node, and for names whose node is unknown
	all sync.Map // from limitKey to limiter
}

type limitKey struct {
	node     int
	replicas bool
}

func newLimits() limits { return limits{one: make(limiter, limit)} }

func (l *limits) of(node int, replicas bool) limiter {
	key := limitKey{node, replicas}
	if key == (limitKey{}) {
		return l.one
	}
	x, ok := l.all.Load(key)
	if !ok {
		width := limit
		if replicas {
			width = replicaLimit
		}
		x, _ = l.all.LoadOrStore(key, make(limiter, width))
	}
	return x.(limiter)
}

// enter takes a slot; leave releases it. It reports whether it had to wait for the slot.
func (l limiter) enter(wait context.Context, closing <-chan struct{}) (waited bool, err error) {
	if wait.Err() != nil {
		return false, fail.Gone(wait)
	}
	select {
	case l <- struct{}{}:
		return false, nil
	default:
		return true, l.await(wait, closing)
	}
}

// await waits for a slot, for retry.Patience at most.
func (l limiter) await(wait context.Context, closing <-chan struct{}) error {
	t := time.NewTimer(retry.Patience)
	defer t.Stop()
	select {
	case l <- struct{}{}:
		return nil
	case <-wait.Done():
		return fail.Gone(wait)
	case <-closing:
		return fail.Closing
	case <-t.C:
		return &backend.Fault{
			Err: fmt.Errorf("%d acquisitions of this client are waiting for the store's answer already, since %v",
				cap(l), retry.Patience),
			Remedy:    "find out why the store is slow, or ask for fewer locks at once",
			Temporary: true,
		}
	}
}

func (l limiter) leave() { <-l }

// leave releases the grant's slot, if it has one.
func (g *grant) leave() {
	if slot := g.slot; slot != nil {
		g.slot = nil
		slot.leave()
	}
}
