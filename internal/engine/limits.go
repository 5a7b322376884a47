package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
)

const (
	// limit bounds how many acquisitions are on their way to a node at once. 256 are enough to fill a connection. The
	// bound keeps a burst of callers from delaying the renewals of held leases in the client library's queue.
	limit = 256
	// replicaLimit bounds acquisitions that wait for replicas. They have slots of their own, so replicas that do not
	// answer delay no other acquisition.
	replicaLimit = 64
)

// limiter is an in-flight limiter: it has a slot for each acquisition on its way. It bounds what is on its way, and not
// how many acquisitions wait for a slot, or for how long, while the store answers others.
type limiter struct {
	slots    chan struct{}
	answered atomic.Uint64         // how many acquisitions had an answer
	failure  atomic.Pointer[error] // of the last acquisition that failed
}

// unanswered is how long an acquisition waits for a slot while no other one has an answer.
const unanswered = 5 * time.Second

func newLimiter(width int) *limiter { return &limiter{slots: make(chan struct{}, width)} }

// limits are the limiters: two for each node of the store, one of them for acquisitions that wait for replicas.
type limits struct {
	one *limiter // for a store of one node, and for names whose node is unknown
	all sync.Map // from limitKey to *limiter
}

type limitKey struct {
	node     int
	replicas bool
}

func newLimits() limits { return limits{one: newLimiter(limit)} }

func (l *limits) of(node int, replicas bool) *limiter {
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
		x, _ = l.all.LoadOrStore(key, newLimiter(width))
	}
	return x.(*limiter)
}

// taken returns how many acquisitions are on their way.
func (l *limits) taken() int {
	n := len(l.one.slots)
	for _, x := range l.all.Range {
		n += len(x.(*limiter).slots)
	}
	return n
}

// enter takes a slot; leave releases it. It reports whether it had to wait for the slot.
func (l *limiter) enter(wait context.Context, closing <-chan struct{}) (waited bool, err error) {
	if wait.Err() != nil {
		return false, fail.Gone(wait)
	}
	select {
	case l.slots <- struct{}{}:
		return false, nil
	default:
		return true, l.await(wait, closing)
	}
}

// await waits for a slot. It gives up if no acquisition has an answer for as long as unanswered says.
func (l *limiter) await(wait context.Context, closing <-chan struct{}) error {
	t := time.NewTimer(unanswered)
	defer t.Stop()
	for answered := l.answered.Load(); ; answered = l.answered.Load() {
		select {
		case l.slots <- struct{}{}:
			return nil
		case <-wait.Done():
			return fail.Gone(wait)
		case <-closing:
			return fail.Closing
		case <-t.C:
			if l.answered.Load() == answered {
				return l.refusal()
			}
			t.Reset(unanswered)
		}
	}
}

// refusal returns the error of an acquisition that is not sent because no other one has an answer.
func (l *limiter) refusal() error {
	err := fmt.Errorf("no acquisition of this client had an answer in %v, and %d are on their way, "+
		"so this one was not sent",
		unanswered, cap(l.slots))
	if last := l.failure.Load(); last != nil {
		err = fmt.Errorf("%w; the last failure: %w", err, *last)
	}
	return &backend.Fault{
		Err: err, Remedy: "look whether the store hangs, and whether this process has time to run", Temporary: true,
	}
}

// leave releases a slot of an acquisition that had an answer, or that came to failure.
func (l *limiter) leave(failure error) {
	if failure == nil || !temporary(failure) { // the store's refusal of a request is an answer, too
		l.answered.Add(1)
		if l.failure.Load() != nil {
			l.failure.Store(nil)
		}
	} else {
		l.failed(failure)
	}
	<-l.slots
}

func (l *limiter) failed(err error) { l.failure.Store(&err) }

// leave releases the grant's slot, if it has one.
func (g *grant) leave() {
	if slot := g.slot; slot != nil {
		g.slot = nil
		slot.leave(g.err)
	}
}
