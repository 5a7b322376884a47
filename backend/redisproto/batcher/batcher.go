// Package batcher sends calls that are ready at the same time in one round trip. A call is never
// delayed to fill a batch.
package batcher

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// fewSenders is the number of round trips at the same time to a server that is near: one is in
	// the client while the other is in the server. With more round trips each has fewer calls, and
	// costs both sides more.
	fewSenders = 2
	// waits is about how long a call may wait for the round trips before it. Each such time that a
	// round trip takes allows one more round trip at the same time, up to mostSenders.
	waits       = 100 * time.Microsecond
	mostSenders = 8
	// stuckAfter is how long all senders may be busy before an extra sender is started: a connection
	// that is broken without an error delays only the calls sent over it.
	stuckAfter = 5 * time.Millisecond
	// mostExtra bounds the number of extra senders.
	mostExtra = 64
)

// Batcher sends calls to one server: calls that are ready at the same time go out in one round trip,
// and no call is delayed to fill a batch. If the context of a caller ends, the caller leaves, and its
// call goes on. The goroutines are few, and end after Close.
//
// A Batcher is of no use for a cluster: a node that does not answer would delay calls to other nodes
// in the same batch.
type Batcher[C any] struct {
	send   func(ctx context.Context, calls []C) // returns when each call has its reply
	share  int                                  // the most calls in one round trip; 0 for any number
	ctx    context.Context                      // ends with Close
	cancel context.CancelFunc
	wake   chan struct{} // wakes a parked sender, once for each value
	free   sync.Pool     // of *queued[C]

	mu      sync.Mutex
	pending []*queued[C] // calls that no sender has taken
	parked  int          // senders that wait for wake: one at most
	senders int          // goroutines of run, the parked one included
	extra   int          // goroutines of carry
	leading int          // callers that send their own call
	most    int          // the most busy senders and leading callers at the same time, without extra senders
	// quickest is about the shortest of the last round trips; 0 before the first.
	quickest time.Duration
	stuck    patience
}

// patience is the timer that finds all senders busy for too long.
type patience struct {
	timer *time.Timer
	armed bool // timer runs
	taken bool // a sender took calls since timer was started
}

type queued[C any] struct {
	call C
	done chan struct{} // gets a value when the reply is there; capacity 1
}

// New returns a Batcher. send gets at least one call, and returns when each call has its reply.
func New[C any](send func(ctx context.Context, calls []C)) *Batcher[C] { return newLimited(0, send) }

// newLimited returns a Batcher that sends at most share calls in a round trip; zero for any number.
func newLimited[C any](share int, send func(ctx context.Context, calls []C)) *Batcher[C] {
	x := &Batcher[C]{send: send, share: share, wake: make(chan struct{}, mostSenders), most: fewSenders}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// Lead reports whether a caller may send its call by itself, with the context own: no other call is
// on its way or waits, and ctx cannot end, so the caller cannot leave. The caller then calls Led. With
// a nil Batcher each caller sends its call by itself, with ctx.
func (x *Batcher[C]) Lead(ctx context.Context) (own context.Context, alone bool) {
	if x == nil {
		return ctx, true
	}
	if ctx.Done() != nil {
		return nil, false
	}
	return x.ctx, x.leads()
}

// leads is Lead for a caller whose context may end, because it can leave a call that it sends by itself.
func (x *Batcher[C]) leads() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.pending) > 0 || x.senders > x.parked || x.extra > 0 || x.leading > 0 {
		return false
	}
	x.leading++
	return true
}

// Led ends the call of a caller that Lead let send by itself.
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

// Do sends call, even if ctx has ended. Do returns nil when the reply has arrived. If ctx ends before,
// Do returns a channel that gets one value when the reply has arrived.
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

// Close ends the context that send gets, which makes the client library give up calls in flight if it
// can. The goroutines end once all accepted calls were sent.
func (x *Batcher[C]) Close() {
	x.cancel()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stuck.timer != nil {
		x.stuck.timer.Stop()
	}
}

// dispatch wakes or starts a sender for the pending calls. If there are as many as allowed, it starts the timer of
// unstick. It is called with the mutex.
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
		x.wake <- struct{}{} // does not block: at most one value for each sender
	default:
		x.senders++
		go x.run()
	}
}

// timed notes the duration of a round trip, and sets most. A longer duration than quickest raises quickest by 1/64 at
// most.
func (x *Batcher[C]) timed(took time.Duration) {
	if later := x.quickest + x.quickest/64 + 1; x.quickest == 0 || took < later {
		x.quickest = took
	} else {
		x.quickest = later
	}
	x.most = min(fewSenders+int(x.quickest/waits), mostSenders)
}

// unstick is called stuckAfter after all senders were busy. It starts an extra sender if none of them has taken the
// pending calls since.
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

// run is the goroutine of a sender. It parks when nothing is pending, unless another sender is parked.
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
		if x.ctx.Err() != nil || x.parked > 0 { // one parked sender is enough
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
			case <-x.wake: // dispatch woke this sender, and has counted it as not parked
			default:
				x.parked--
			}
			x.mu.Unlock()
		}
	}
}

// carry is the goroutine of an extra sender. It ends when nothing is pending.
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

// batch is the calls of one round trip of a sender.
type batch[C any] struct {
	queued  []*queued[C]
	calls   []C
	took    time.Duration // the duration of the last round trip; 0 once timed has noted it
	several bool          // the last round trip had several calls
}

// yieldForBatch lets runnable callers join the batch, if the last round trip had several calls. For a
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
