package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
)

// stubbornly is how long a command that counts once is repeated. The store remembers it from when it first arrived, so
// half of that time leaves as much for the way.
const stubbornly = backend.Remembered / 2

// Counting is the engine as counters see it: one name with a count in the store.
type Counting struct {
	*Engine
	Topic backend.Topic
}

// With is a request with what its options left to the client, unless they are wrong.
func (k Counting) With(r Request, err error) (Request, error) { return WithDefaults(k.Engine, r), err }

// Change is a request that counts once however often it is sent.
func (k Counting) Change(n int64) backend.CountRequest {
	if k.Usable() != nil {
		return backend.CountRequest{} // it is not sent
	}
	return backend.CountRequest{Topic: k.Topic, ID: k.OwnerID(), N: n}
}

// Ask asks or changes something, on behalf of a caller that may leave.
func (k Counting) Ask(ctx context.Context, op string, send func(ctx context.Context) error) error {
	return k.Manage(ctx, op, k.Topic.Name, func() error { return k.Send(send) })
}

// Send repeats what fails for a reason that may pass.
func (k Counting) Send(send func(ctx context.Context) error) error {
	return k.retry.Do(func() error { return send(k.base) })
}

// SeeThrough sends what must be sent though the caller leaves, and though the store is unavailable for a while.
func (k Counting) SeeThrough(ctx context.Context, op string, send func(ctx context.Context) error) error {
	if err := CheckName(k.Topic.Name); err != nil {
		return err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	k.begin()
	defer k.end()
	err := k.SendOff(ctx, func() error { return k.insist(op, send) }, nil)
	if fail.IsGone(err) {
		return fmt.Errorf("%w: the request is sent all the same and its outcome is unknown; do not repeat it", err)
	}
	return err
}

// insist is Send, and goes on in the background.
func (k Counting) insist(op string, send func(ctx context.Context) error) error {
	first := k.Now()
	err := k.Send(send)
	switch {
	case err == nil:
		return nil
	case !temporary(err):
		return k.Explain(err)
	}
	k.lock()
	over := k.calls.over
	if !over {
		k.goOn(op, first, send)
	}
	k.unlock()
	if over {
		return fmt.Errorf("%w before the request was confirmed; its outcome is unknown: %w",
			fail.Closed, fail.NotCallers(err))
	}
	return fmt.Errorf("%w: the request is not confirmed and is retried in the background for %v; do not repeat it: %w",
		fail.Unavailable, stubbornly, err)
}

// goOn repeats in the background what must arrive. What is given up, permits perhaps that no process has, is told in
// the log. It is called with the mutex.
func (k Counting) goOn(op string, first clock.Instant, send func(ctx context.Context) error) {
	var last error
	gaveUp := func() {
		k.announce.Line(slog.LevelError, "mortise: could not be confirmed and is given up; look whether the count is right",
			"op", op, "name", fail.Shorten(k.Topic.Name), "err", last)
	}
	k.renewer.repeat(k.Topic.Name, first.Add(stubbornly).Mono, func() bool {
		last = send(k.base)
		if last != nil && !temporary(last) {
			gaveUp()
		}
		return last == nil || !temporary(last)
	}, gaveUp)
}

// GoOn repeats in the background what must arrive.
func (k Counting) GoOn(op string, send func(ctx context.Context) error) {
	k.lock()
	defer k.unlock()
	k.goOn(op, k.Now(), send)
}

// Waiting is one call that waits for a count.
type Waiting struct {
	call  *call
	topic backend.Topic
	look  func() (done bool, err error)
}

// Waiting makes one; what it gets begins with ctx, and its wait ends with ctx or with the request's.
func (k Counting) Waiting(ctx context.Context, r Request) (w *Waiting, cancel func(), err error) {
	things := "latches"
	if k.Topic.Kind == backend.KindCountingSemaphore {
		things = "counting semaphores"
	}
	switch {
	case k.Usable() != nil:
		return nil, nil, r.Fail(fail.Zero)
	case ctx == nil:
		return nil, nil, r.Fail(fail.NilContext)
	case r.Lease > 0:
		return nil, nil, r.Fail(fail.Invalidf("WithLease does not apply: %s have no lease", things))
	case r.MaxHold > 0:
		return nil, nil, r.Fail(fail.Invalidf("WithMaxHold does not apply: %s have no lease", things))
	}
	c := new(call)
	c.begin(k.Engine, ctx, ctx, r)
	c.ttl = 0
	cancel = func() {}
	if r.Wait > 0 {
		c.wait, cancel = bound.Wait(ctx, r.Wait)
	}
	return &Waiting{call: c, topic: k.Topic}, cancel, nil
}

// Quiet keeps the wait from the observer.
func (w *Waiting) Quiet() { w.call.marks.contended = true }

// Look has the call ask by itself once where other calls wait already: what the first of those was told may be known to
// it, and not to this call. Done ends the wait.
func (w *Waiting) Look(look func() (done bool, err error)) { w.look = look }

// Context bounds the wait.
func (w *Waiting) Context() context.Context { return w.call.wait }

// For waits until ask gets what it asks for: see Answer. Wants is how many permits it waits for; zero for none. Served
// is the request by which another question got them, if the wait ended with an error nevertheless.
func (w *Waiting) For(wants int64, ask func() (Answer, error)) (served *backend.CountRequest, err error) {
	c := w.call
	c.Wants = wants
	if err = c.waitIn(w.topic, w.look, ask); err == nil {
		return nil, nil
	}
	c.engine.lock()
	defer c.engine.unlock()
	if c.waiter.Served() {
		served = c.waiter.taken
	}
	return served, err
}

// Enrolment is what a question that is asked now asks of the store's queue.
func (w *Waiting) Enrolment() backend.Enrolment { return w.call.enrolment() }

// Enrolled notes that a question, whose caller has left, has put an entry into the store's queue.
func (w *Waiting) Enrolled(q backend.Enrolment) {
	w.call.engine.names.enrolledBehind(w.topic, uint32(q.Entry))
}

// Answered tells the observer what became of the call, and returns err.
func (w *Waiting) Answered(err error) error {
	c := w.call
	if err != nil {
		c.notAcquired(err)
	} else {
		c.acquired(nil, 0)
	}
	return err
}

// Joined numbers the waiter that came last; Serve tells all up to a number that what they wait for is so.
func (k Counting) Joined() uint64 {
	k.lock()
	defer k.unlock()
	if q := k.names.records[k.Topic].queue(); q != nil {
		return q.Joined()
	}
	return 0
}

// Serve tells all waiters up to a number that what they wait for is so.
func (k Counting) Serve(number uint64) {
	k.lock()
	defer k.unlock()
	k.names.records[k.Topic].queue().Serve(number)
}

// Taker is a waiter behind the first that wants no more permits than are free.
type Taker struct {
	Wants  int64
	waiter *waiter
}

// Taker finds the first of those; ok is false if there is none.
func (k Counting) Taker(free int64) (t Taker, ok bool) {
	k.lock()
	defer k.unlock()
	if x := k.names.records[k.Topic].queue().Taker(free); x != nil {
		return Taker{x.Wants, x.Waiter.(*waiter)}, true
	}
	return Taker{}, false
}

// Give gives a waiter what a request took; it is false if the waiter has left, has what it wants, or asks for itself.
func (k Counting) Give(t Taker, q backend.CountRequest) bool {
	k.lock()
	defer k.unlock()
	w := t.waiter
	if w.Left() || w.Served() || k.names.records[k.Topic].first() == w {
		return false
	}
	w.taken = &q
	w.Serve()
	return true
}

// Notify has the first waiter ask.
func (k Counting) Notify() {
	k.lock()
	defer k.unlock()
	k.names.notify(k.Topic)
}

// Permit finds what holds a live permit of this client, and the ids of all permits that it holds; nil if nothing does.
func (k Counting) Permit(id string) (h Holding, ids []string) {
	k.lock()
	defer k.unlock()
	if t := k.names.permits[id]; t != nil && t.name.topic == k.Topic && t.Live > 0 {
		for h := range t.All {
			return h, slices.Collect(backend.PermitIDs(t.Owner))
		}
	}
	return nil, nil
}

// Holding is what Permit finds.
type Holding interface {
	Unlock(ctx context.Context) error
}
