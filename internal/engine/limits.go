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
	// limit bounds how many acquisitions are on their way at once. It fills any connection, and a burst of callers
	// does not push the renewals of held leases to the end of a long queue in the client library.
	limit = 256
	// replicaLimit bounds those that wait for replicas: replicas that do not answer hold up no other lock.
	replicaLimit = 64
)

// limiter is an in-flight limiter: it has a slot for each command on its way.
type limiter chan struct{}

// limits are the limiters: one for each node of the store, and one for acquisitions there that wait for replicas.
type limits struct {
	one limiter  // where the store is one node, or the node is not known
	all sync.Map // of limitKey, limiter
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

// enter takes a slot; leave gives it back. It reports whether it had to wait for one.
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

// await waits for a slot.
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

// leave gives the slot back, once.
func (g *grant) leave() {
	if slot := g.slot; slot != nil {
		g.slot = nil
		slot.leave()
	}
}

// leaveUnless gives the slot back where a command did not return: a backend panicked.
func (g *grant) leaveUnless(returned *bool) {
	if !*returned {
		g.leave()
	}
}
