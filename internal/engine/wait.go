package engine

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

const (
	// suspicion is how long a waiter is blocked by its own client's holder before the log says so.
	suspicion = 10 * time.Second
	// lookAgain is when a waiter asks again though the record has no end.
	lookAgain = 30 * time.Second
	// soonest is the longest pause between the asks of a call that polls with which it has a place in the store's
	// queue.
	soonest = 20 * time.Millisecond
	// recheck is when an enrolled waiter asks though nothing told it to.
	recheck = 5 * time.Second
	// spacing is what a client that waits for many names, a crowd, leaves between such asks, on average. The time to
	// the next ask for a name varies so widely that those that came together do not come together again, at over 100 a
	// second.
	spacing = 15 * time.Millisecond
	crowd   = 100
	// reunion is the time over which a client asks again when it is told of releases again.
	reunion = 500 * time.Millisecond
	// lookBack is how often a waiter asks whether a store that failed is back, at the least: locking is to resume
	// within a second of a new master.
	lookBack = 400 * time.Millisecond
)

// recheckBy is when an enrolled waiter whose lock is held until left asks next though nothing tells it to.
func (s *names) recheckBy(left time.Duration) time.Duration {
	look := min(left, upTo(recheck))
	if s.waiting < crowd {
		return look
	}
	many := time.Duration(s.waiting) * spacing
	return max(look, many/2+rand.N(many))
}

// upTo is a time between three quarters of d and d.
func upTo(d time.Duration) time.Duration { return d*3/4 + rand.N(d/4+1) }

// Answer is what the store said to a waiter.
type Answer struct {
	Got      bool
	More     bool          // there is more, for the next
	Free     int64         // permits that were not enough
	Left     time.Duration // until it may be had without a release; negative if never
	Look     time.Duration // when to ask again, if that is another time; else 0
	Again    time.Duration // when to ask again at the latest, if positive
	Enrolled bool          // it will be told when it is its turn
	First    bool          // and it is to ask at a release, too, which serves no entry then
	Failure  error         // the store's; the question is repeated if it may pass
}

// queueUp waits for the lock in its local queue, and asks for itself.
func (c *call) queueUp() (got *lease.Handle, err error) {
	e := c.engine
	if c.Family == backend.KindWrite {
		e.begin() // Shutdown waits until its claim is being withdrawn
		defer e.end()
	}
	c.marks.relays = e.store.can.Queue != nil && c.Family == backend.KindLock && c.Age == nil && c.Polling == 0
	w := c.at(c.topic())
	defer w.quit()
	if c.Limit.undeclared() && w.behind() {
		if got, err = w.declare(); got != nil || err != nil {
			return got, err
		}
	}
	for w.next() {
		c.marks.claims = c.Family == backend.KindWrite
		var h *lease.Hold
		if ctx, alone := c.asks.open(); alone { // as ask does: a lone caller passes as few functions as can be
			h, err = c.asks.close(c.asks.send(ctx))
		} else {
			h, err = c.asks.apart()
		}
		if h != nil {
			got = &h.Handle
		}
		w.heard(c.asks.answer(h, err))
	}
	if w.err != nil && c.marks.claims {
		c.withdrawClaim()
	}
	return got, w.err
}

// declare asks once for a call that is not the first: those before it declare other limits, or none, and may wait for
// just this one. It returns nothing where the call is to wait.
func (w *wait) declare() (*lease.Handle, error) {
	e := w.engine
	e.begin()
	defer e.end()
	h, err := w.asks.ask()
	failure := w.asks.grant.err
	if h == nil && err == nil && failure == nil {
		return nil, nil
	}
	if err == nil && failure != nil {
		err = e.Explain(failure)
	}
	e.lock()
	if err != nil {
		w.giveUp(err)
		return nil, w.err
	}
	w.leave()
	return &h.Handle, nil
}

// answer is what the last question came to.
func (c *question) answer(h *lease.Hold, err error) (Answer, error) {
	r := &c.grant.reply
	switch {
	case err != nil:
		return Answer{}, err
	case r.Absent:
		return Answer{}, c.delegationEnded()
	}
	a := Answer{
		Got: h != nil, More: r.Available > 0 || c.Family == backend.KindRead,
		Free: r.Available, Left: r.Remaining, Enrolled: r.Enrolled, First: r.First, Failure: c.grant.err,
	}
	if c.delegation != nil {
		a.Look = r.AskAfter
	}
	if r.Claimed {
		a.Again = c.engine.Config.Watchdog / 3
	}
	return a, nil
}

// waitIn waits in t's local queue until ask gets what it asks for. Where others wait there already, look, if it is set,
// comes first, which reports whether there is nothing to wait for. What waitIn returns is what users see, and so is an
// error of ask or look, or *fail.CallerGone when the wait ended.
func (c *call) waitIn(t backend.Topic, look func() (bool, error), ask func() (Answer, error)) error {
	w := c.at(t)
	defer w.quit()
	if look != nil && w.behind() {
		if done, err := look(); done || err != nil {
			w.engine.lock()
			w.leave()
			return err
		}
	}
	for w.next() {
		w.heard(ask())
	}
	return w.err
}

// wait is one call's wait in a local queue. While the call is the first there, it asks each time that something may
// have changed the answer. Before it first sleeps on the store it has the topic watched and asks again, so that no
// release falls between; one that polls backs off instead. It goes: for w.next() { w.heard(ask()) }.
type wait struct {
	*call
	topic  backend.Topic
	name   *name // nil until it is in the queue
	waiter *waiter
	pause  time.Duration // the next between the asks of a call that polls
	timer  *time.Timer
	retry  int64 // when it would have asked, had nothing happened
	asking bool  // an answer is to come
	over   bool
	err    error // what users see
	last   error // the store's last failure, nil after an answer
	slept  bool  // what fails now is an interruption
	warned bool
}

func (c *call) at(t backend.Topic) wait {
	return wait{call: c, topic: t, waiter: &c.waiter, pause: c.Polling}
}

// next waits until the call is to ask; it is false when the wait is over.
func (w *wait) next() bool {
	if w.over {
		return false
	}
	w.engine.lock()
	if w.name == nil && !w.join() {
		return false
	}
	for {
		now := w.now()
		asks, wakeAt := w.name.Next(now.Mono)
		err := w.hopeless()
		switch {
		case w.waiter.Served():
			w.leave()
			return false
		case err != nil:
		case w.waiter.handed != nil || asks == &w.waiter.Ticket:
			w.begins()
			return true
		case w.announces(now):
		default:
			err = w.sleep(now, wakeAt)
		}
		if err != nil {
			w.giveUp(err)
			return false
		}
	}
}

// behind enters the local queue, and reports whether others wait there already.
func (w *wait) behind() bool {
	w.engine.lock()
	if !w.join() {
		return false
	}
	behind := w.name.first() != w.waiter
	w.engine.unlock()
	return behind
}

// join enters the local queue. It is called with the mutex, as are the methods below, and lets it go if it fails.
func (w *wait) join() bool {
	if w.engine.calls.shut {
		w.engine.unlock()
		w.over, w.err = true, w.Fail(fail.Closed)
		return false
	}
	if w.waiter.Joined() {
		w.waiter = new(waiter)
	}
	if w.marks.relays && w.Replicas.N == 0 { // what is handed over is not replicated
		w.waiter.call = w.call
	}
	w.waiter.Waiter, w.waiter.Wish = w.waiter, w.Request.Wish
	w.name = w.engine.names.of(w.topic)
	w.engine.names.expect(w.name)
	w.name.Join(&w.waiter.Ticket)
	return true
}

// begins prepares a question, and lets the mutex go.
func (w *wait) begins() {
	e, n, handed := w.engine, w.name, w.waiter.handed
	w.asks.handed, w.waiter.handed = handed, nil
	w.marks.enrols = handed == nil && (w.queues() && e.names.watches.confirmed(n.topic) || w.pollsInQueue())
	n.enrols, n.behind = w.marks.enrols, false
	w.marks.entry, w.marks.heard, n.heard = n.entry, n.heard, false
	w.marks.least, w.marks.stays = n.Least(), n.Len() > 1
	w.retry, w.asking = n.Asks(), true
	e.calls.running++
	e.unlock()
}

// queues reports whether the call's client may enrol, once it is told of releases.
func (w *wait) queues() bool {
	return w.marks.relays || w.Polling == 0 && w.engine.store.enrols(w.topic.Kind)
}

// pollsInQueue reports whether the call polls, and so often that the lock can be reserved for it until it asks.
func (w *wait) pollsInQueue() bool {
	return 0 < w.Polling && w.Polling <= soonest &&
		w.Family == backend.KindLock && w.Age == nil && w.engine.store.can.Queue != nil
}

// heard settles the answer to a question. It is called without the mutex.
func (w *wait) heard(a Answer, failure error) {
	if !a.Got {
		bound.Begins(w.call.wait)
	}
	e := w.engine
	e.lock()
	e.calls.ended()
	w.asking = false
	switch {
	case failure != nil:
		w.name.Pass() // what woke it, if anything did, is the next one's
	case a.Got:
		w.got(&a)
		w.leave()
		return
	case a.Failure != nil:
		failure = w.failed(a.Failure)
	default:
		w.refused(&a)
	}
	if failure != nil {
		w.giveUp(failure)
		return
	}
	e.unlock()
}

// quit ends the wait where a question, or an observer, panicked.
func (w *wait) quit() {
	if w.over || w.name == nil {
		return
	}
	if w.asking {
		w.asks.panicked()
	}
	w.engine.lock()
	if w.asking {
		w.engine.calls.ended()
	}
	w.name.Pass()
	w.leave()
}

// hopeless is why waiting makes no sense.
func (w *wait) hopeless() error {
	switch {
	case w.name.deaf != nil && w.name.first() == w.waiter:
		return w.engine.Explain(w.name.deaf)
	case w.engine.calls.shut && w.waiter.handed == nil:
		return fail.Closing
	}
	return nil
}

// got passes on what the call knows to the next.
func (w *wait) got(a *Answer) {
	n, retry := w.name, w.retry
	n.failing = 0
	if w.marks.enrols {
		n.enrolled, n.foremost = a.Enrolled, false
	}
	if retry != clock.Never && w.ttl > 0 { // what was got may be the first to end
		retry = min(retry, w.engine.Now().Mono+int64(w.ttl+time.Millisecond))
	}
	switch {
	case n.Holder != nil: // which wakes the next
	case a.More || !n.refused || retry == clock.Never:
		n.Pass()
	case w.marks.enrols && !n.enrolled: // the next asks for a place in the store's queue
		n.Pass()
	default:
		n.RetryAt(retry)
	}
	n.enrolled = n.enrolled || n.behind // then it is withdrawn with the last waiter
}

// failed has the question repeated, if the store's failure may pass and a call that waits already sits it out.
func (w *wait) failed(err error) error {
	n := w.name
	w.last = err
	now := w.engine.Now().Mono
	if n.failing == 0 {
		n.failing = now
	}
	lasts := time.Duration(now - n.failing)
	interrupted := w.slept || w.Resumed
	if !interrupted || !temporary(err) || lasts > w.engine.Config.Watchdog || errors.Is(err, fail.Closing) {
		n.Pass()
		return w.engine.Explain(err)
	}
	n.RetryAt(now + int64(min(lasts/2+50*time.Millisecond, lookBack)))
	return nil
}

// refused notes when to ask again.
func (w *wait) refused(a *Answer) {
	n, now := w.name, w.engine.Now().Mono
	w.last, n.failing, n.answered = nil, 0, true
	left := a.Left
	if w.marks.endless = left < 0; w.marks.endless {
		left = lookAgain
	}
	if w.pause > 0 {
		n.Refused(now+int64(left), now+int64(min(left, w.pause/2+rand.N(w.pause))))
		if n.enrolled = n.enrolled || a.Enrolled; !a.Enrolled {
			w.pause = min(2*w.pause, 64*w.Polling)
		}
		return
	}
	n.refused = true
	n.enrolled = n.enrolled || a.Enrolled
	n.foremost = n.foremost || a.First // it may have been told so before this answer came
	look := left
	if w.marks.enrols { // where the store had no room for the entry, nothing is told
		look = w.engine.names.recheckBy(left)
	}
	if a.Look > 0 {
		look = a.Look
	}
	if a.Again > 0 {
		look = min(look, a.Again)
	}
	n.Refused(now+int64(left), now+int64(look+time.Millisecond))
	if w.Family == backend.KindSemaphore {
		if t := n.Taker(a.Free); t != nil { // what is free is enough for it: it asks before this one
			n.Advance(t)
		}
	}
	w.engine.names.watches.update(n.topic)
}

// announces tells, once, that the call waits, and reports whether that let the mutex go.
func (w *wait) announces(now clock.Instant) bool {
	if w.slept {
		return false
	}
	w.slept = true
	bound.Begins(w.call.wait)
	if !w.tellsWaiting() {
		return false
	}
	left := w.name.remaining(now)
	w.marks.fresh = false
	w.engine.unlock()
	w.waiting(left)
	w.engine.lock()
	return true
}

// sleep waits until the call is told, is to look, or its wait is over.
func (w *wait) sleep(now clock.Instant, wakeAt int64) (err error) {
	e := w.engine
	if w.name.first() != w.waiter {
		wakeAt = clock.Never
	}
	w.name.Sleeps(&w.waiter.Ticket, wakeAt)
	sleep := time.Duration(clock.Never)
	if wakeAt != clock.Never {
		sleep = time.Duration(wakeAt - now.Mono)
	}
	sleep = min(sleep, w.suspects(now))
	w.marks.fresh = false
	ready := w.waiter.Ready()
	e.unlock()
	defer e.lock()
	if w.timer == nil {
		w.timer = time.NewTimer(sleep)
	} else {
		w.timer.Reset(sleep)
	}
	select {
	case <-ready:
	case <-w.timer.C:
	case <-w.call.wait.Done():
		return fail.Gone(w.call.wait)
	case <-e.calls.closing:
		return fail.Closing
	}
	return nil
}

// suspects says in the log, once, that the call waits long for its own client; it returns when to look.
func (w *wait) suspects(now clock.Instant) time.Duration {
	holder := w.engine.names.holderOf(w.name)
	if w.warned || holder == nil || !w.engine.announce.Logs() {
		return time.Duration(clock.Never)
	}
	waited := now.Sub(w.since)
	if waited < suspicion {
		return suspicion - waited
	}
	w.warned = true
	w.engine.announce.Line(slog.LevelWarn, "mortise: waiting long for a lock that this client itself holds; "+
		"to enter the lock again, give Lock the Context of the lease",
		"name", fail.Shorten(w.Name), "owner", holder.Owner, "waited", waited)
	return time.Duration(clock.Never)
}

// giveUp leaves the queue without what the call waits for.
func (w *wait) giveUp(err error) {
	e, n := w.engine, w.name
	left := n.remaining(e.Now())
	// What ends before the store had its time to answer has waited for another call of this client.
	behind := 0 < w.Wait && w.Wait < bound.FirstAnswer && e.Since(w.since) < bound.FirstAnswer
	if left < 0 && (n.answered || w.Resumed || behind) {
		left = 0 // held, for how long is being asked just now
	}
	if n.topic.Kind != backend.KindLock {
		n.Pass() // the next may ask for less, or to read: what this one was told says nothing to it
	}
	w.leave()
	w.err = w.gaveUp(err, left, w.last)
}

// leave takes the call out of its queue, releases what it was handed too late, and lets the mutex go.
func (w *wait) leave() {
	e, n := w.engine, w.name
	w.over, w.asking = true, false
	n.Leave(&w.waiter.Ticket)
	e.names.tidy(n)
	e.names.watches.update(n.topic)
	if g := w.waiter.handed; g != nil { // it has two: its first was removed, and had again by another of this client
		w.waiter.handed = nil
		e.renewer.abandon(&w.Request, g, debt{family: w.Family, name: w.Name, owner: g.owner, place: w.place})
		e.calls.ended()
	}
	e.unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// remaining is what is left of the holder's lease as far as known; negative if it is not.
func (n *name) remaining(now clock.Instant) time.Duration {
	if n.Holder != nil {
		return max(n.Holder.Deadline.Until(now), 0)
	}
	return n.Ends(now.Mono)
}

// holderOf is the tenure of this client that n's waiters wait for; nil if there is none.
func (s *names) holderOf(n *name) *tenure {
	if n.topic.Kind == backend.KindFair {
		n = s.records[lockTopic(n.topic.Name)]
	}
	return n.holder()
}
