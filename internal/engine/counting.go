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

// retryFor is how long a request that must count once is retried. The store remembers a request for
// backend.Remembered, so the last retry may take the other half to arrive.
const retryFor = backend.Remembered / 2

// Counting is the engine for package counters: one name with a count in the store.
type Counting struct {
	*Engine
	Topic backend.Topic
}

// With returns r with the client's defaults, and err.
func (k Counting) With(r Request, err error) (Request, error) { return WithDefaults(k.Engine, r), err }

// Change returns a request with an ID of its own: it counts once however often it is sent.
func (k Counting) Change(n int64) backend.CountRequest {
	if k.Usable() != nil {
		return backend.CountRequest{} // the request is not sent
	}
	return backend.CountRequest{Topic: k.Topic, ID: k.OwnerID(), N: n}
}

// Ask runs send, with retries, for a caller that may leave. It fails after Shutdown has begun.
func (k Counting) Ask(ctx context.Context, op string, send func(ctx context.Context) error) error {
	wait := given(ctx)
	return k.Manage(ctx, op, k.Topic.Name, func() error { return k.Send(wait, send) })
}

// Replace runs send, as Ask does. Send replaces the number that the requests of limit declare by n; none of them
// declares a number meanwhile.
func (k Counting) Replace(
	ctx context.Context, op string, limit *Limit, n int64, send func(ctx context.Context) error,
) error {
	wait := given(ctx)
	return k.Manage(ctx, op, k.Topic.Name, func() error {
		return limit.replace(n, k.base.Done(), func() error { return k.Send(wait, send) })
	})
}

// Send runs send with the client's context, and retries temporary failures until wait ends or Shutdown begins.
func (k Counting) Send(wait context.Context, send func(ctx context.Context) error) error {
	return k.asking().Do(wait, func() error { return send(k.base) })
}

// SendReliably runs send, even if the caller leaves, and for up to retryFor if the store is unavailable.
func (k Counting) SendReliably(ctx context.Context, op string, send func(ctx context.Context) error) error {
	if err := CheckName(k.Topic.Name); err != nil {
		return err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	k.begin()
	defer k.end()
	err := k.SendOff(ctx, func() error { return k.sendThenRetry(op, send) }, nil)
	if fail.IsGone(err) {
		return fmt.Errorf("%w: the request is sent all the same and its outcome is unknown; do not repeat it", err)
	}
	return err
}

// sendThenRetry is Send. After a temporary failure it goes on in the background.
func (k Counting) sendThenRetry(op string, send func(ctx context.Context) error) error {
	first, owing := k.Now(), true
	k.Owe()
	defer func() {
		if owing {
			k.Settle()
		}
	}()
	err := k.Send(k.base, send)
	switch {
	case err == nil:
		return nil
	case !temporary(err):
		return k.Explain(err)
	}
	k.lock()
	owing = false
	k.calls.settled(k.Topic.Name)
	over := k.calls.over
	if !over {
		k.retryInBackground(op, first, send).last = err
	}
	k.unlock()
	if over {
		return fmt.Errorf("%w before the request was confirmed; its outcome is unknown: %w",
			fail.Closed, fail.NotCallers(err))
	}
	return fmt.Errorf("%w: the request is not confirmed and is retried in the background for %v; do not repeat it: %w",
		fail.Unavailable, retryFor, err)
}

// Owe notes that a change of the count is on its way: Shutdown reports it if its context ends before the answer. Settle
// ends that.
func (k Counting) Owe() {
	k.lock()
	defer k.unlock()
	k.calls.owe(k.Topic.Name)
}

// Settle ends what Owe began: the change has its answer, is repeated in the background, or changes nothing.
func (k Counting) Settle() {
	k.lock()
	defer k.unlock()
	k.calls.settled(k.Topic.Name)
}

// retryInBackground retries send in the background until retryFor after first. If it gives up, it logs that: the
// permits may then belong to no process. It is called with the mutex.
func (k Counting) retryInBackground(op string, first clock.Instant, send func(context.Context) error) *repetition {
	gaveUp := func(last error) {
		k.announce.Line(slog.LevelError, "mortise: could not be confirmed and is given up; look whether the count is right",
			"op", op, "name", fail.Shorten(k.Topic.Name), "err", last)
	}
	return k.renewer.repeat(k.Topic.Name, first.Add(retryFor).Mono, true, func() (done bool, err error) {
		last := send(k.base)
		if last != nil && !temporary(last) {
			gaveUp(last)
		}
		return last == nil || !temporary(last), last
	}, gaveUp)
}

// RetryInBackground runs send in the background, for up to retryFor.
func (k Counting) RetryInBackground(op string, send func(ctx context.Context) error) {
	k.lock()
	defer k.unlock()
	k.retryInBackground(op, k.Now(), send)
}

// Waiting is a call that waits for a count.
type Waiting struct {
	call  *call
	topic backend.Topic
	early bool
	knows any                   // what the call has seen: see Counting.Tell
	taken *backend.CountRequest // the request of another waiter that took permits for this one: Counting.Give
}

// Waiting returns a new Waiting. Its wait ends with ctx, or after r.Wait. The caller calls cancel in the end.
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

// Quiet keeps the wait from being reported to the observer.
func (w *Waiting) Quiet() { w.call.marks.contended = true }

// Early makes the call ask once before it waits, even if other calls of this client wait already: the first of those
// may know an answer that this call does not. Knows is what this call has seen.
func (w *Waiting) Early(knows any) { w.early, w.knows = true, knows }

// Context returns the context that bounds the wait.
func (w *Waiting) Context() context.Context { return w.call.wait }

// For waits until ask answers Got: see Answer. Wants is the number of permits; zero for other counts. If another waiter
// took permits for this one, For calls taken with that waiter's request, even if the wait ends with an error, or the
// observer panics.
func (w *Waiting) For(wants int32, ask func() (Answer, error), taken func(backend.CountRequest)) error {
	c := w.call
	c.Wants = wants
	defer func() {
		c.engine.lock()
		defer c.engine.unlock()
		if w.taken != nil && c.waiter.Served() {
			taken(*w.taken)
		}
	}()
	c.waiter.count = w
	return c.waitIn(w.topic, w.early, ask)
}

// Enrolment returns the entry for a request that is sent now.
func (w *Waiting) Enrolment() backend.Enrolment { return w.call.enrolment() }

// Enrolled notes that a request whose caller has left has put an entry into the store's queue.
func (w *Waiting) Enrolled(q backend.Enrolment) {
	w.call.engine.names.enrolledBehind(w.topic, uint32(q.Entry), "", false)
}

// Answered reports the outcome of the call to the observer, and returns err.
func (w *Waiting) Answered(err error) error {
	c := w.call
	if err != nil {
		c.notAcquired(err)
	} else {
		c.acquired(nil, 0)
	}
	return err
}

// Joined returns the number of the newest waiter, for Serve.
func (k Counting) Joined() uint64 {
	k.lock()
	defer k.unlock()
	if q := k.names.records[k.Topic].queue(); q != nil {
		return q.Joined()
	}
	return 0
}

// Serve serves all waiters up to a number: they have what they wait for.
func (k Counting) Serve(number uint64) {
	k.lock()
	defer k.unlock()
	k.names.records[k.Topic].queue().Serve(number)
}

// Tell serves all waiters that have seen something else than now.
func (k Counting) Tell(now any) {
	k.lock()
	defer k.unlock()
	q := k.names.records[k.Topic].queue()
	if q == nil {
		return
	}
	for t := range q.All {
		if t.Waiter.(*waiter).count.knows != now {
			t.Serve()
		}
	}
}

// Taker is a waiter behind the first, for which the free permits are enough.
type Taker struct {
	Wants  int32
	waiter *waiter
}

// Taker returns the oldest such waiter; ok is false if there is none.
func (k Counting) Taker(free int64) (t Taker, ok bool) {
	k.lock()
	defer k.unlock()
	if x := k.names.records[k.Topic].queue().Taker(free); x != nil {
		return Taker{x.Wants, x.Waiter.(*waiter)}, true
	}
	return Taker{}, false
}

// Give serves t's waiter with the permits that q took. It reports false if the waiter has left, has been served, or is
// the first now and so asks by itself.
func (k Counting) Give(t Taker, q backend.CountRequest) bool {
	k.lock()
	defer k.unlock()
	w := t.waiter
	if w.Left() || w.Served() || k.names.records[k.Topic].first() == w {
		return false
	}
	w.count.taken = &q
	w.Serve()
	return true
}

// Notify wakes the first waiter to ask.
func (k Counting) Notify() {
	k.lock()
	defer k.unlock()
	k.names.notify(k.Topic)
}

// Permit returns a hold of the live tenure that has the permit of an id, and the ids of all permits of the tenure; nil
// if this client has no such tenure.
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

// Holding is a lease that Permit returns.
type Holding interface {
	Unlock(ctx context.Context) error
}
