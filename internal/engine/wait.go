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
	// suspicion is how long a waiter waits for a holder of its own client before the log warns.
	suspicion = 10 * time.Second
	// endlessRecheck is what a waiter takes for the rest of a lease that has no end.
	endlessRecheck = 30 * time.Second
	// maxEnrolPolling is the longest polling interval with which a call enrols.
	maxEnrolPolling = 20 * time.Millisecond
	// recheck is the longest time after which a waiter that is enrolled, whose topic is not watched yet, or that waits
	// for what has no end, asks without a message, except in a crowd.
	recheck = 5 * time.Second
	// spacing is the average time between the rechecks of a client that waits for a crowd of names. The time to the
	// next recheck of a name is random: the names must not stay in step.
	spacing = 15 * time.Millisecond
	crowd   = 100
	// reunion is the time over which the clients' requests are spread after an interruption of their watches.
	reunion = 500 * time.Millisecond
	// failingRetryMax bounds the pause between requests to a store that fails: after a failover, locking is to resume in
	// a second.
	failingRetryMax = 400 * time.Millisecond
)

// recheckBy returns when a waiter asks without a message. Left is the rest of the holder's lease.
func (s *names) recheckBy(left time.Duration) time.Duration {
	after := min(left, upTo(recheck))
	if s.waiting < crowd {
		return after
	}
	many := time.Duration(s.waiting) * spacing
	return max(after, many/2+rand.N(many))
}

// upTo returns a random time between three quarters of d and d.
func upTo(d time.Duration) time.Duration { return d*3/4 + rand.N(d/4+1) }

// Answer is the store's answer to a waiter's request.
type Answer struct {
	Got      bool
	More     bool          // the next waiter is to ask at once
	Free     int64         // refused: the number of free permits
	Left     time.Duration // the rest of the holder's lease; negative: only a release helps
	AskAfter time.Duration // if positive, when to ask again, instead of after Left
	Again    time.Duration // if positive, when to ask again at the latest
	Enrolled bool          // the entry is in the store's queue: the session reports when to ask
	First    bool          // the entry is the first: ask also after a release that served no entry
	Untold   time.Duration // if positive, the entry is new, and for how long the store does not tell that it is the first
	Failure  error         // the store's error; a waiter that has slept retries a temporary one
}

// queueUp acquires the lock, and waits in the local queue of the call's topic.
func (c *call) queueUp() (got *lease.Handle, err error) {
	e := c.engine
	if c.Family == backend.KindWrite {
		e.begin() // Shutdown waits until withdrawClaim has begun
		defer e.end()
	}
	w := c.at(c.topic())
	defer w.quit()
	if c.Limit.undeclared() && w.behind() {
		got = w.declare()
	}
	for w.next() {
		c.marks.claims = c.Family == backend.KindWrite
		var h *lease.Hold
		if ctx, alone := c.attempt.prepare(); alone { // as attempt.run, without its frame: test/faults bounds them
			h, err = c.attempt.finishHere(c.attempt.send(ctx))
		} else {
			h, err = c.attempt.runElsewhere()
		}
		if h != nil {
			got = &h.Handle
		}
		w.apply(c.attempt.answer(h, err))
	}
	if w.err != nil && c.marks.claims {
		c.withdrawClaim()
	}
	return got, w.err
}

// declare sends the request of a call that is not the first in the local queue, and whose limit is not declared. The
// calls before it declare other limits, or none, and may wait for just this limit.
func (w *wait) declare() (got *lease.Handle) {
	h, err := w.attempt.run()
	if h != nil {
		got = &h.Handle
	}
	w.asked(w.attempt.answer(h, err))
	return got
}

// answer returns the outcome of the last request.
func (c *attempt) answer(h *lease.Hold, err error) (Answer, error) {
	r := &c.grant.reply
	switch {
	case err != nil:
		return Answer{}, err
	case r.Absent:
		return Answer{}, c.delegationEnded()
	}
	a := Answer{
		Got: h != nil, More: r.Available > 0 || c.Family == backend.KindRead,
		Free: r.Available, Left: r.Remaining, Enrolled: r.Enrolled, First: r.First,
		Failure: c.grant.err,
	}
	if c.delegation != nil {
		a.AskAfter = r.AskAfter
	} else {
		a.Untold = r.AskAfter
	}
	if r.Claimed {
		a.Again = c.engine.Config.Watchdog / 3
	}
	return a, nil
}

// waitIn waits in the local queue of t until ask answers Got. Early: the call asks once before it waits, even if other
// calls wait there already. waitIn returns the error for users. An error that ask returns ends the wait; it is
// *fail.CallerGone if the wait has ended anyway.
func (c *call) waitIn(t backend.Topic, early bool, ask func() (Answer, error)) error {
	w := c.at(t)
	defer w.quit()
	if early && w.behind() {
		w.asked(ask())
	}
	for w.next() {
		w.apply(ask())
	}
	return w.err
}

// wait is a call's wait in a local queue: for w.next() { w.apply(ask()) }. While the call is the first, it asks each
// time that something may have changed the answer. Before it first sleeps, it has the topic watched, and asks again
// once the watch has begun, so that no release is missed. A call that polls asks after pauses instead.
type wait struct {
	*call
	topic  backend.Topic
	name   *name // nil before join
	waiter *waiter
	pause  time.Duration // the next pause of a call that polls
	timer  *time.Timer
	retry  int64 // when the call would have asked without an event
	asking bool  // an answer is to come
	over   bool
	err    error // the error for users
	last   error // the store's last failure; nil after an answer
	slept  bool  // the call has waited: it sits out a temporary failure
	warned bool
}

func (c *call) at(t backend.Topic) wait {
	return wait{call: c, topic: t, waiter: &c.waiter, pause: c.Polling}
}

// next waits until the call is to ask. It reports false when the wait is over.
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
		case w.waiter.handoffGrant != nil || asks == &w.waiter.Ticket:
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

// behind enters the local queue. If other calls wait there already, it reports true: the call then asks once, and gives
// the answer to asked.
func (w *wait) behind() bool {
	w.engine.lock()
	if !w.join() {
		return false
	}
	w.asking = w.name.first() != w.waiter
	if w.asking {
		w.engine.calls.running++
	}
	w.engine.unlock()
	return w.asking
}

// asked applies the answer to the request of a call that is not the first. The first knows when to ask, so a refusal
// changes nothing.
func (w *wait) asked(a Answer, failure error) {
	e := w.engine
	if failure == nil && a.Failure != nil {
		failure = e.Explain(a.Failure)
	}
	e.lock()
	e.calls.ended()
	w.asking = false
	switch {
	case failure != nil:
		w.giveUp(failure)
	case a.Got:
		w.leave()
	case w.MaxWaiters > 0 && w.crowded(1): // it declared a limit before it would have waited
		w.name.Pass()
		w.leave()
	default:
		e.unlock()
	}
}

// join puts the call into the local queue. It is called with the mutex, as the methods below, and unlocks it on
// failure.
func (w *wait) join() bool {
	if w.engine.calls.shut {
		w.engine.unlock()
		w.over, w.err = true, w.Fail(fail.Closed)
		return false
	}
	if w.MaxWaiters > 0 && !w.Limit.undeclared() && w.crowded(0) { // a call that declares a limit asks first
		w.engine.unlock()
		w.over = true
		return false
	}
	if w.waiter.Joined() {
		w.waiter = new(waiter)
	}
	// A handoff, and a grant by a message, wait for no replicas.
	if w.queues() && w.engine.store.owned(w.topic.Kind) && w.Replicas.N == 0 {
		w.waiter.call = w.call
	}
	w.waiter.Waiter, w.waiter.Wish = w.waiter, w.Request.Wish
	w.waiter.Declares, w.waiter.Depth = w.Limit.declares(), w.delegation.Depth()
	w.name = w.engine.names.of(w.topic)
	w.engine.names.expect(w.name)
	w.name.Join(&w.waiter.Ticket)
	w.engine.calls.running++ // Shutdown waits until the call has left, so that no entry stays in the store's queue
	if w.name.listens = w.name.listens || w.Polling == 0; w.name.answered {
		w.engine.names.watches.update(w.topic)
	}
	return true
}

// crowded reports whether the call does not wait because of WithMaxWaiters, and sets the error for users. own is how
// many of the waiters are the call itself.
func (w *wait) crowded(own int) bool {
	n := w.engine.names.records[w.topic]
	if n == nil || !w.Full(n.queue().Len()-own) {
		return false
	}
	left := max(n.remaining(w.engine.Now()), 0)
	if n.Endless {
		left = -1
	}
	w.err = w.Crowded(n.Len()-own, left)
	return true
}

// begins prepares an attempt, and unlocks the mutex.
func (w *wait) begins() {
	e, n, handed := w.engine, w.name, w.waiter.handoffGrant
	w.attempt.handoffGrant, w.waiter.handoffGrant = handed, nil
	if !w.queues() && !w.pollsInQueue() { // the call cannot claim what the store reserves for the entry
		e.names.withdrawEntry(n)
	}
	w.marks.enrols = handed == nil && (w.queues() && e.names.watches.confirmed(n.topic) || w.pollsInQueue())
	n.enrols, n.enrolledLate, n.claims = w.marks.enrols, false, w.Family == backend.KindWrite
	w.attempt.entry, w.marks.heard, n.heard = n.entry, n.heard, false
	if w.marks.places = w.marks.enrols && e.store.grants(n.topic.Kind); w.marks.places {
		w.attempt.grant = e.names.ask(n, w.call)
	}
	w.marks.least, w.marks.stays = int32(n.Least()), n.Len() > 1
	w.retry, w.asking = n.Asks(), true
	e.calls.running++
	e.unlock()
}

// relays reports whether the call can take a handoff, and can enrol by QueueStore: it waits for a plain lock and does
// not poll.
func (w *wait) relays() bool {
	return w.Family == backend.KindLock && w.Polling == 0 && w.Age == nil && w.engine.store.can.Queue != nil
}

// queues reports whether the call enrols once its topic is watched.
func (w *wait) queues() bool {
	return w.relays() || w.Polling == 0 && w.engine.store.enrols(w.topic.Kind)
}

// pollsInQueue reports whether the call polls, and often enough that the store can reserve the lock for it.
func (w *wait) pollsInQueue() bool {
	return 0 < w.Polling && w.Polling <= maxEnrolPolling &&
		w.Family == backend.KindLock && w.Age == nil && w.engine.store.can.Queue != nil
}

// apply applies the answer to a request. It is called without the mutex.
func (w *wait) apply(a Answer, failure error) {
	if !a.Got {
		bound.Begins(w.call.wait)
	}
	e := w.engine
	e.lock()
	e.calls.ended()
	w.asking = false
	served := w.marks.places && w.placed(&a, failure)
	switch {
	case failure != nil:
		w.name.Pass() // the event that woke this call, if one did, is for the next waiter
	case a.Got:
		w.got(&a)
		w.leave()
		return
	case served:
	case a.Failure != nil:
		failure = w.failed(a.Failure)
	default:
		if w.refused(&a); w.name.first() == w.waiter { // otherwise a waiter that wants less goes before it already
			w.name.Overtake()
		}
	}
	if failure != nil {
		w.giveUp(failure)
		return
	}
	e.unlock()
}

// placed notes the answer to the request for the owner of the waiters' place. If the grant of that owner has come
// meanwhile, the call takes it, whatever the answer is: served is true.
func (w *wait) placed(a *Answer, failure error) (served bool) {
	n, g := w.name, &w.attempt.grant
	p, came := &n.place, n.place.came
	p.came = nil
	switch {
	case a.Got:
		p.granted(g.owner)
		return false
	case failure != nil && !w.marks.sent: // the next waiter asks, and finds the grant that came
		p.asking, n.enrolled = false, n.enrolled || came != nil
		return false
	case failure != nil: // what g holds is the request's, which may go on
		p.spent(g.owner)
		if came != nil {
			w.engine.names.leave(w.topic, uint64(n.entry), came.owner)
		}
		return false
	case g.abandoned:
		p.spent(g.owner)
		return false
	}
	p.answered(g, a.Failure != nil, w.engine.Now())
	switch {
	case came == nil || came.owner != g.owner:
	case w.waiter.takes(p, came, w.engine.Now()):
		came.unknown, came.until = g.unknown, g.until
		n.give(w.waiter, came)
		return true
	default:
		n.Notify()
	}
	return false
}

// quit ends the wait if ask, or the observer, panicked.
func (w *wait) quit() {
	if w.over || w.name == nil {
		return
	}
	if w.asking {
		w.attempt.panicked()
	}
	w.engine.lock()
	if w.asking {
		w.engine.calls.ended()
	}
	if w.asking && w.marks.places { // the request goes on, or is being compensated
		w.name.place.spent(w.attempt.grant.owner)
	}
	w.name.Pass()
	w.leave()
	if w.marks.claims {
		w.withdrawClaim()
	}
}

// hopeless returns why the wait cannot go on; nil if it can. A call that polls needs no messages.
func (w *wait) hopeless() error {
	switch {
	case w.name.watchErr != nil && w.name.first() == w.waiter && w.Polling == 0:
		return w.engine.Explain(w.name.watchErr)
	case w.name.lacks.concerns(w.Replicas, &w.waiter.Ticket):
		return w.engine.Explain(w.name.lacks.err)
	case w.engine.calls.shut && w.waiter.handoffGrant == nil:
		return fail.Closing
	}
	return nil
}

// got passes what the call knows on to the next waiter.
func (w *wait) got(a *Answer) {
	n, retry := w.name, w.retry
	n.failing, n.Endless = 0, false
	if w.marks.enrols {
		n.enrolled, n.firstInStore = a.Enrolled, false
	}
	if retry != clock.Never && w.ttl > 0 { // the lease that was acquired may end first
		retry = min(retry, w.engine.Now().Mono+int64(w.ttl+time.Millisecond))
	}
	switch {
	case n.Holder != nil: // the end of this tenure wakes the next waiter
	case a.More || !n.needsMessages() || retry == clock.Never:
		n.Pass()
	case (w.marks.enrols || w.attempt.handoffGrant != nil) && !n.enrolled: // the next waiter enrols
		n.Pass()
	default:
		n.RetryAt(retry)
	}
	n.enrolled = n.enrolled || n.enrolledLate // so that the last waiter withdraws the entry
}

// failed plans the retry after a temporary failure, if the call has waited before. Otherwise it returns the error.
func (w *wait) failed(err error) error {
	n := w.name
	w.last = err
	if errors.Is(err, fail.NotReplicated) {
		n.lack(w.Replicas, err)
	}
	now := w.engine.Now().Mono
	if n.failing == 0 {
		n.failing = now
	}
	lasts := time.Duration(now - n.failing)
	interrupted := w.slept || w.Resumed || errors.Is(err, errGrantedLate)
	if !interrupted || !temporary(err) || lasts > w.engine.Config.Watchdog || errors.Is(err, fail.Closing) {
		n.Pass()
		return w.engine.Explain(err)
	}
	n.RetryAt(now + int64(min(lasts/2+50*time.Millisecond, failingRetryMax)))
	return nil
}

// refused plans the next request after a refusal.
func (w *wait) refused(a *Answer) {
	n, now := w.name, w.engine.Now().Mono
	w.last, n.failing, n.answered = nil, 0, true
	n.comes(now, a.Untold)
	left := a.Left
	if n.Endless = left < 0; n.Endless {
		left = endlessRecheck
	}
	if w.pause > 0 {
		n.Refused(now+int64(left), now+int64(min(left, w.pause/2+rand.N(w.pause))))
		if n.enrolled = n.enrolled || a.Enrolled; !a.Enrolled {
			w.pause = min(2*w.pause, 64*w.Polling)
		}
		w.engine.names.watches.update(n.topic) // for a waiter behind this one
		return
	}
	n.enrolled = n.enrolled || a.Enrolled
	n.firstInStore = n.firstInStore || a.First // the message First may have come before this answer
	after := left
	// Enrols: even if the store had no room for the entry, and so sends no message.
	if w.marks.enrols || n.Endless {
		after = w.engine.names.recheckBy(left)
	} else if !w.engine.names.watches.confirmed(n.topic) {
		after = min(left, w.engine.names.recheckBy(left))
	}
	if a.AskAfter > 0 {
		after = a.AskAfter
	}
	if a.Again > 0 {
		after = min(after, a.Again)
	}
	n.Refused(now+int64(left), n.retry(w.attempt.grant.asked.Mono, now, now+int64(after+time.Millisecond)))
	if w.Family == backend.KindSemaphore {
		if t := n.Taker(a.Free); t != nil { // the free permits are enough for t: t asks before this call
			n.Advance(t)
		}
	}
	w.engine.names.watches.update(n.topic)
}

// announces reports once, to the observer, that the call waits. It returns whether it unlocked the mutex meanwhile.
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

// sleep waits until the ticket is woken, wakeAt has come, the wait has ended, or the client shuts down.
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

// suspects warns once, in the log, that a call waits long for a holder of its own client. It returns when to check
// next.
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

// giveUp ends the wait with an error.
func (w *wait) giveUp(err error) {
	e, n := w.engine, w.name
	left := n.remaining(e.Now())
	// A short wait that ended before FirstAnswer had passed was spent behind another call of this client.
	behind := 0 < w.Wait && w.Wait < bound.FirstAnswer && e.Since(w.since) < bound.FirstAnswer
	switch {
	case n.Endless:
		left = endless
	case left < 0 && (n.answered || w.Resumed || behind):
		left = 0 // the lock is held; for how long, another request is asking now
	}
	if n.topic.Kind != backend.KindLock || w.Polling > 0 {
		n.Pass() // the next may want less, or to read, or does not poll: the refusal of this call says nothing about it
	}
	w.leave()
	w.err = w.gaveUp(err, left, w.last)
}

// leave takes the call out of its queue, and unlocks the mutex. It releases the grant of a handoff that came too late.
func (w *wait) leave() {
	e, n := w.engine, w.name
	w.over, w.asking = true, false
	if g := w.waiter.handoffGrant; g != nil { // the wait had ended, or the call's own request was granted, too
		w.waiter.handoffGrant = nil
		e.renewer.abandon(&w.Request, g, debt{family: w.Family, name: w.Name, owner: g.owner, keepFor: w.keepFor})
		e.calls.ended()
		n.Pass() // the grant has taken the entry out of the store's queue: the next waiter enrols
	}
	n.Leave(&w.waiter.Ticket)
	e.names.tidy(n)
	e.calls.ended()
	e.names.watches.update(n.topic)
	e.unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// remaining returns the rest of the holder's lease; negative if unknown.
func (n *name) remaining(now clock.Instant) time.Duration {
	if n.Holder != nil {
		return max(n.Holder.Deadline.Until(now), 0)
	}
	return n.Ends(now.Mono)
}

// holderOf returns the tenure of this client that n's waiters wait for; nil if there is none.
func (s *names) holderOf(n *name) *tenure {
	if n.topic.Kind == backend.KindFair {
		n = s.records[lockTopic(n.topic.Name)]
	}
	return n.holder()
}
