package redisproto

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

const (
	// outboxSenders is how many round trips are on their way at once, near a server that answers: one of them is in the
	// client while the other is in the server. More are smaller, and cost both sides more.
	outboxSenders = 2
	// outboxWaits is how long a call may wait for others' round trips, about: the longer they are, the more there are
	// at once, outboxMostSenders at most.
	outboxWaits       = 100 * time.Microsecond
	outboxMostSenders = 8
	// outboxStuck is how long they may be, before another is begun beside them: a connection
	// that is broken, and does not show it, holds up nobody but those whose calls it took.
	outboxStuck = 5 * time.Millisecond
	// outboxMost bounds those.
	outboxMost = 64
)

// Outbox sends calls to one server: those that are ready at the same time in one round
// trip, without holding any back for that. A caller whose context ends leaves its call
// to itself. Its goroutines are few, and end with Close.
//
// It is of no use for a cluster: a node that hangs would hold up the calls for others that
// were sent with its own.
type Outbox[C any] struct {
	send   func(ctx context.Context, calls []C) // returns when each has its reply
	share  int                                  // the most that go out together; 0 for any number
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // a token for each sender that is to look
	free   sync.Pool     // of *letter[C]

	mu      sync.Mutex
	pending []*letter[C]
	parked  int // senders that sleep: one at most
	senders int // that stay while there is something to send, and those that are parked
	extra   int // that end when there is nothing left
	leading int // callers that send their own
	most    int // senders and leading ones at once, save the extra ones
	// quickest is what a round trip took that took little, of the last ones; 0 if there was none.
	quickest time.Duration
	stuck    *time.Timer
	armed    bool // stuck is
	taken    bool // something was sent since it was armed
}

type letter[C any] struct {
	call C
	done chan struct{} // has room for one
}

// NewOutbox makes an outbox. send gets at least one call.
func NewOutbox[C any](send func(ctx context.Context, calls []C)) *Outbox[C] {
	o := &Outbox[C]{send: send, wake: make(chan struct{}, outboxMostSenders), most: outboxSenders}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

// Do sends call, also where ctx has ended. It returns nil when the reply is there. When ctx
// ends first it returns a channel, which gets one value when the reply is there.
func (o *Outbox[C]) Do(ctx context.Context, call C) (left <-chan struct{}) {
	leave := ctx.Done()
	o.mu.Lock()
	if leave == nil && len(o.pending) == 0 && o.senders == o.parked && o.extra == 0 && o.leading == 0 {
		// Nobody to go with, and nobody who leaves: no other goroutine is needed.
		o.leading++
		o.mu.Unlock()
		defer o.led()
		o.send(o.ctx, []C{call})
		return nil
	}
	l, _ := o.free.Get().(*letter[C])
	if l == nil {
		l = &letter[C]{done: make(chan struct{}, 1)}
	}
	l.call = call
	o.pending = append(o.pending, l)
	o.summon()
	o.mu.Unlock()
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
	o.free.Put(l)
	return nil
}

// Close ends the goroutines once they have sent what was handed in, and has the client
// library give up what is on its way, where it can.
func (o *Outbox[C]) Close() {
	o.cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stuck != nil {
		o.stuck.Stop()
	}
}

// led comes after a caller's own call.
func (o *Outbox[C]) led() {
	o.mu.Lock()
	o.leading--
	if len(o.pending) > 0 {
		o.summon()
	}
	o.mu.Unlock()
}

// summon has what is pending sent. It is called with the mutex.
func (o *Outbox[C]) summon() {
	switch {
	case o.ctx.Err() != nil:
		o.extra++
		go o.carry()
	case o.senders-o.parked+o.leading >= o.most:
		if o.armed {
			return
		}
		o.armed, o.taken = true, false
		if o.stuck == nil {
			o.stuck = time.AfterFunc(outboxStuck, o.unstick)
		} else {
			o.stuck.Reset(outboxStuck)
		}
	case o.parked > 0:
		o.parked--
		o.wake <- struct{}{} // has room: there is one for each sender at most
	default:
		o.senders++
		go o.run()
	}
}

// timed notes what a round trip took.
func (o *Outbox[C]) timed(took time.Duration) {
	if later := o.quickest + o.quickest/64 + 1; o.quickest == 0 || took < later {
		o.quickest = took
	} else {
		o.quickest = later
	}
	o.most = min(outboxSenders+int(o.quickest/outboxWaits), outboxMostSenders)
}

// unstick is called a moment after all senders were busy.
func (o *Outbox[C]) unstick() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.armed = false
	if len(o.pending) == 0 {
		return
	}
	if !o.taken && o.extra < outboxMost {
		o.extra++
		go o.carry()
	}
	o.armed, o.taken = true, false
	o.stuck.Reset(outboxStuck)
}

// run is a sender that stays.
func (o *Outbox[C]) run() {
	var b bundle[C]
	for {
		for b.company(); o.take(&b); b.company() {
			o.deliver(&b)
		}
		o.mu.Lock()
		if len(o.pending) > 0 {
			o.mu.Unlock()
			continue
		}
		if o.ctx.Err() != nil || o.parked > 0 { // one is enough to wait for what comes
			o.senders--
			o.mu.Unlock()
			return
		}
		o.parked++
		o.mu.Unlock()
		select {
		case <-o.wake:
		case <-o.ctx.Done():
			o.mu.Lock()
			select {
			case <-o.wake: // was told to, and is not parked any more
			default:
				o.parked--
			}
			o.mu.Unlock()
		}
	}
}

// carry is a sender that does not.
func (o *Outbox[C]) carry() {
	var b bundle[C]
	for o.take(&b) {
		o.deliver(&b)
	}
	o.mu.Lock()
	o.extra--
	if len(o.pending) > 0 {
		o.summon()
	}
	o.mu.Unlock()
}

// bundle is what goes out together.
type bundle[C any] struct {
	letters []*letter[C]
	calls   []C
	took    time.Duration // the last round trip; 0 if there was none
	several bool          // went out together the last time
}

// company lets those who are ready to call go along, if there were several. For one who calls again and again it
// would only take time.
func (b *bundle[C]) company() {
	if b.several {
		runtime.Gosched()
	}
}

func (o *Outbox[C]) take(b *bundle[C]) bool {
	o.mu.Lock()
	if n := o.share; n > 0 && n < len(o.pending) {
		b.letters = append(b.letters, o.pending[:n]...)
		o.pending = slices.Delete(o.pending, 0, n)
	} else {
		b.letters, o.pending = o.pending, b.letters[:0]
	}
	o.taken = true
	if b.took > 0 {
		o.timed(b.took)
		b.took = 0
	}
	o.mu.Unlock()
	return len(b.letters) > 0
}

func (o *Outbox[C]) deliver(b *bundle[C]) {
	for _, l := range b.letters {
		b.calls = append(b.calls, l.call)
	}
	b.several = len(b.calls) > 1
	sent := time.Now()
	o.send(o.ctx, b.calls)
	b.took = time.Since(sent)
	for i, l := range b.letters {
		b.letters[i] = nil
		l.done <- struct{}{}
	}
	clear(b.calls)
	b.letters, b.calls = b.letters[:0], b.calls[:0]
}

// Leave makes the error of a call that was left, from what [Outbox.Do] returned and how
// its reply is read.
func Leave[R any](done <-chan struct{}, reply func() (R, error)) error {
	return &backend.Left[R]{Wait: func() (R, error) { <-done; return reply() }}
}
