// Package batcher sends calls together when they are ready at the same time. The batcher never
// delays a call to fill a batch, and does not look into calls.
package batcher

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// fewSenders is how many round trips are on their way at once, near a server that answers: one
	// of them is in the client while the other is in the server. More are smaller, and cost both
	// sides more.
	fewSenders = 2
	// waits is how long a call may wait for others' round trips, about: the longer they are, the more there are
	// at once, mostSenders at most.
	waits       = 100 * time.Microsecond
	mostSenders = 8
	// stuckAfter is how long they may be, before another is begun beside them: a connection
	// that is broken, and does not show it, holds up only the calls that it took.
	stuckAfter = 5 * time.Millisecond
	// mostExtra bounds those.
	mostExtra = 64
)

// Batcher sends calls to one server: calls ready at the same time go out in one round trip, and no
// call is delayed to fill a batch. A caller whose context ends leaves its call behind. The
// goroutines are few, and end with Close.
//
// A Batcher is of no use for a cluster: a node without answers would delay the batched calls to
// other nodes.
type Batcher[C any] struct {
	send   func(ctx context.Context, calls []C) // returns when each has its reply
	share  int                                  // the most that go out together; 0 for any number
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // a token for each sender that is to look
	free   sync.Pool     // of *queued[C]

	mu      sync.Mutex
	pending []*queued[C]
	parked  int // senders that sleep: one at most
	senders int // that stay while there is something to send, and those that are parked
	extra   int // that end when there is nothing left
	leading int // callers that send their own
	most    int // senders and leading ones at once, save the extra ones
	// quickest is what a round trip took that took little, of the last ones; 0 if there was none.
	quickest time.Duration
	stuck    patience
}

// patience is how long the senders may be busy.
type patience struct {
	timer *time.Timer
	armed bool // timer is
	taken bool // something was sent since it was armed
}

type queued[C any] struct {
	call C
	done chan struct{} // has room for one
}

// New makes a batcher. send gets at least one call, and returns when each call has its reply.
func New[C any](send func(ctx context.Context, calls []C)) *Batcher[C] { return newLimited(0, send) }

// newLimited makes a batcher that sends so many calls together at most, zero for any number.
func newLimited[C any](share int, send func(ctx context.Context, calls []C)) *Batcher[C] {
	x := &Batcher[C]{send: send, share: share, wake: make(chan struct{}, mostSenders), most: fewSenders}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// Lead reports whether a caller may send its call by itself, under the context own: there is no
// other call for a batch, and a caller without a cancellable context needs no other goroutine. The
// caller then calls Led. A nil batcher makes each caller send by itself, under ctx.
func (x *Batcher[C]) Lead(ctx context.Context) (own context.Context, alone bool) {
	if x == nil {
		return ctx, true
	}
	if ctx.Done() != nil {
		return nil, false
	}
	return x.ctx, x.leads()
}

// leads is Lead for a caller that can leave the call that it sends.
func (x *Batcher[C]) leads() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.pending) > 0 || x.senders > x.parked || x.extra > 0 || x.leading > 0 {
		return false
	}
	x.leading++
	return true
}

// Led is called after the call of a leading caller.
func (x *Batcher[C]) Led() {
	if x == nil {
		return
	}
	x.mu.Lock()
	x.leading--
	if len(x.pending) > 0 {
		x.dispatch()
	}
	x.mu.Unlock()
}

// Do sends call, also after the end of ctx. Do returns nil when the reply has arrived. If ctx ends
// first, Do returns a channel; the channel gets one value when the reply has arrived.
func (x *Batcher[C]) Do(ctx context.Context, call C) (left <-chan struct{}) {
	if own, alone := x.Lead(ctx); alone {
		defer x.Led()
		x.send(own, []C{call})
		return nil
	}
	leave := ctx.Done()
	x.mu.Lock()
	l, _ := x.free.Get().(*queued[C])
	if l == nil {
		l = &queued[C]{done: make(chan struct{}, 1)}
	}
	l.call = call
	x.pending = append(x.pending, l)
	x.dispatch()
	x.mu.Unlock()
	if leave == nil {
		<-l.done
	} else {
		select {
		case <-l.done:
		case <-leave:
			return l.done
		}
	}
	var none C
	l.call = none
	x.free.Put(l)
	return nil
}

// Close ends the goroutines once they have sent all accepted calls, and makes the client library
// give up calls in flight, where possible.
func (x *Batcher[C]) Close() {
	x.cancel()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stuck.timer != nil {
		x.stuck.timer.Stop()
	}
}

// dispatch has what is pending sent. It is called with the mutex.
func (x *Batcher[C]) dispatch() {
	switch {
	case x.ctx.Err() != nil:
		x.extra++
		go x.carry()
	case x.senders-x.parked+x.leading >= x.most:
		if x.stuck.armed {
			return
		}
		x.stuck.armed, x.stuck.taken = true, false
		if x.stuck.timer == nil {
			x.stuck.timer = time.AfterFunc(stuckAfter, x.unstick)
		} else {
			x.stuck.timer.Reset(stuckAfter)
		}
	case x.parked > 0:
		x.parked--
		x.wake <- struct{}{} // has room: there is one for each sender at most
	default:
		x.senders++
		go x.run()
	}
}

// timed notes what a round trip took.
func (x *Batcher[C]) timed(took time.Duration) {
	if later := x.quickest + x.quickest/64 + 1; x.quickest == 0 || took < later {
		x.quickest = took
	} else {
		x.quickest = later
	}
	x.most = min(fewSenders+int(x.quickest/waits), mostSenders)
}

// unstick is called a moment after all senders were busy.
func (x *Batcher[C]) unstick() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stuck.armed = false
	if len(x.pending) == 0 {
		return
	}
	if !x.stuck.taken && x.extra < mostExtra {
		x.extra++
		go x.carry()
	}
	x.stuck.armed, x.stuck.taken = true, false
	x.stuck.timer.Reset(stuckAfter)
}

// run is a sender that stays.
func (x *Batcher[C]) run() {
	var b batch[C]
	for {
		for b.yieldForBatch(); x.take(&b); b.yieldForBatch() {
			x.deliver(&b)
		}
		x.mu.Lock()
		if len(x.pending) > 0 {
			x.mu.Unlock()
			continue
		}
		if x.ctx.Err() != nil || x.parked > 0 { // one is enough to wait for what comes
			x.senders--
			x.mu.Unlock()
			return
		}
		x.parked++
		x.mu.Unlock()
		select {
		case <-x.wake:
		case <-x.ctx.Done():
			x.mu.Lock()
			select {
			case <-x.wake: // was told to, and is not parked any more
			default:
				x.parked--
			}
			x.mu.Unlock()
		}
	}
}

// carry is a sender that does not.
func (x *Batcher[C]) carry() {
	var b batch[C]
	for x.take(&b) {
		x.deliver(&b)
	}
	x.mu.Lock()
	x.extra--
	if len(x.pending) > 0 {
		x.dispatch()
	}
	x.mu.Unlock()
}

// batch is what goes out together.
type batch[C any] struct {
	queued  []*queued[C]
	calls   []C
	took    time.Duration // the last round trip; 0 if there was none
	several bool          // went out together the last time
}

// yieldForBatch lets runnable callers join the batch, if there were several the last time. For a
// lone caller it would only take time.
func (b *batch[C]) yieldForBatch() {
	if b.several {
		runtime.Gosched()
	}
}

func (x *Batcher[C]) take(b *batch[C]) bool {
	x.mu.Lock()
	if n := x.share; n > 0 && n < len(x.pending) {
		b.queued = append(b.queued, x.pending[:n]...)
		x.pending = slices.Delete(x.pending, 0, n)
	} else {
		b.queued, x.pending = x.pending, b.queued[:0]
	}
	x.stuck.taken = true
	if b.took > 0 {
		x.timed(b.took)
		b.took = 0
	}
	x.mu.Unlock()
	return len(b.queued) > 0
}

func (x *Batcher[C]) deliver(b *batch[C]) {
	for _, l := range b.queued {
		b.calls = append(b.calls, l.call)
	}
	b.several = len(b.calls) > 1
	sent := time.Now()
	x.send(x.ctx, b.calls)
	b.took = time.Since(sent)
	for i, l := range b.queued {
		b.queued[i] = nil
		l.done <- struct{}{}
	}
	clear(b.calls)
	b.queued, b.calls = b.queued[:0], b.calls[:0]
}
