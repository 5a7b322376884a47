package engine

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/retry"
)

// handoff is a release for the first waiter of the same client: local, without a command, or in the same command.
type handoff struct {
	from  *tenure
	to    *waiter
	owner string // the successor's id
	sent  clock.Instant
	req   backend.ServeRequest
	// events and enrolled are those of the waiters then.
	events   uint64
	enrolled bool
	// changes of the record that were told before: if there are more, the successor asks whether it is there.
	changes int32
	isLocal bool // nothing needs to be sent

	reply   backend.ServeReply
	failure error
}

// newHandoff prepares to hand t's record over; nil if it is to be released for all. Waiters elsewhere know when t's
// lease is over, and ask then: a successor's ends no earlier. It is called with the mutex, and with t's turn.
func newHandoff(t *tenure) *handoff {
	e, n := t.engine, t.name
	if !handsOff(t) {
		return nil
	}
	w := n.first()
	if w == nil || w.call == nil || w.handed != nil || w.call.ttl < t.TTL {
		return nil
	}
	if l := e.names.fair.all[n.topic.Name]; l != nil && l.standing.Len() > 0 {
		return nil // fair waiters wait for the same lock
	}
	h := &handoff{
		from: t, to: w, owner: e.OwnerID(), sent: e.Now(),
		events: n.Events(), enrolled: n.enrolled, changes: n.Changes,
	}
	mayGoOn := n.budget.Left(h.sent.Mono)
	h.isLocal = h.fits(h.sent) && mayGoOn
	h.req = backend.ServeRequest{
		Name: n.topic.Name, Owner: t.Owner, Next: h.owner, Lease: w.call.ttl, Fenced: w.call.Fenced,
		Yield: !mayGoOn, Entry: uint64(n.entry),
	}
	// What it tells may arrive before its reply.
	n.enrolled = n.enrolled || h.req.Yield && e.names.watches.confirmed(n.topic)
	return h
}

// handsOff reports whether t is a record that may go on within the client.
func handsOff(t *tenure) bool {
	e := t.engine
	return e.store.can.Queue != nil && !e.calls.shut && t.kind() == backend.KindLock &&
		t.State == lease.Releasing && t.name.Holder == &t.Tenure
}

// localWithin is for how long after the store's last word on a lease its record goes on without a command.
const localWithin = 250 * time.Millisecond

// fits reports whether the waiter can go on where t, h.from, ends: with t's record in the store as it is, under
// t's id, which stands for one visit of this client then. What the store said, it said just now, so the waiter's
// lease is as long as one that it would get; and nothing of t's is on its way, nor does another have t's id from
// t, that could touch the waiter's lock: t was held once, was not delegated, asked for nothing twice, no renewal is
// being answered, and no text of its owner is in the store, or on its way there.
func (h *handoff) fits(now clock.Instant) bool {
	t, c := h.from, h.to.call
	renewedOnly := t.First.Marks.Watchdog && t.First.MaxHold == 0 && !t.Fence.Drawn
	wantsTheSame := c.Lease == 0 && c.MaxHold == 0 && !c.Fenced
	unnamed := !t.Delegated.Load() && !t.First.Marks.Texts
	undisturbed := !t.Entered() && !t.Plan.Renewing && !t.Plan.Verify && t.trouble == nil
	return renewedOnly && wantsTheSame && unnamed && undisturbed &&
		t.Deadline.Until(now) > t.TTL-clock.Margin(t.TTL)-min(localWithin, t.TTL/4)
}

// local hands the record over without a command, if that still can be: the first waiter may be another by now. It
// gives t's turn back.
func (h *handoff) local() bool {
	if h == nil || !h.isLocal {
		return false
	}
	t := h.from
	e, n := t.engine, t.name
	now := e.Now()
	e.lock()
	defer e.unlock()
	same := n.first() == h.to && h.to.handed == nil && n.Changes == h.changes
	if !same || !handsOff(t) || t.Waited() || !h.fits(now) {
		return false
	}
	g := &grant{granted: true, handed: true, owner: t.Owner, asked: now, changes: h.changes}
	g.sent = t.Deadline.Add(clock.Margin(t.TTL) - t.TTL)
	if t.Plan.VerifyAt != clock.Never {
		g.verifyAt = t.Plan.VerifyAt
	}
	h.to.give(g)
	e.calls.running++
	n.budget.Spend()
	t.State = lease.Over
	t.handed = true
	t.vacate(true)
	t.Leave()
	return true
}

// send sends it.
func (h *handoff) send(ctx context.Context) (backend.ServeReply, error) {
	return h.from.engine.store.can.Queue.Serve(ctx, h.req)
}

// settle hands on what it came to, with the mutex; held tells whether a release that followed found the lock held,
// so that the handoff has not run. It reports whether the first waiter is to ask the store now. What was got for a
// waiter that has left, or was handed another meanwhile, goes back. Shutdown waits for a waiter that was handed the
// lock and does not know it yet.
func (h *handoff) settle(held bool) (ask bool) {
	t, w := h.from, h.to
	e, n := t.engine, t.name
	g := &grant{
		owner: h.owner, handed: true, granted: h.reply.Granted, sent: h.sent, asked: h.sent, changes: h.changes,
	}
	g.reply.Token = h.reply.Token
	// Where a late request may have granted t's lock again, it may have run after that.
	if h.failure != nil && (!held || t.trouble != nil) {
		g.blame(h.failure, h.req.Lease)
	}
	if !h.reply.Enrolled && n.waiters != nil {
		n.enrolled = n.enrolled && h.enrolled
	}
	switch {
	case g.granted && !w.Left() && w.handed == nil:
		w.give(g)
		e.calls.running++
		if n.budget.Spend(); h.req.Yield {
			n.refill(h.reply.Foreign, e.Now().Mono)
			n.budget.Extra()
		}
	case g.granted || g.late > 0:
		d := debt{family: backend.KindLock, name: n.topic.Name, owner: h.owner}
		e.renewer.abandon(&w.call.Request, g, d)
	case h.reply.Enrolled && (n.first() == nil || n.entry != uint32(h.req.Entry)):
		e.names.leave(n.topic, h.req.Entry)
	case h.reply.Enrolled:
		n.enrolled, n.refused = true, true // foremost as told: that may have come before this reply
		n.RetryAt(e.Now().Mono + int64(e.names.recheckBy(e.Config.Watchdog)))
		n.Heard(h.events)
		return false
	}
	return true
}

// withdrawEntry tells the store that nothing waits here any more, where something has. It is called with the mutex.
func (s *names) withdrawEntry(n *name) {
	e := s.engine
	if !n.enrolled {
		return
	}
	n.enrolled = false
	if !e.calls.over {
		s.leave(n.topic, uint64(n.entry))
	}
}

// leave takes an entry out of the store's queue, in the background. It is called with the mutex.
func (s *names) leave(t backend.Topic, entry uint64) {
	e := s.engine
	until := e.Now().Mono + int64(retry.Patience)
	leave := func() error { return e.store.can.Queue.Leave(e.base, t.Name, entry) }
	if e.store.enrols(t.Kind) {
		leave = func() error { return e.store.can.Enrolments.LeaveQueue(e.base, t, entry) }
	}
	e.renewer.repeat(t.Name, until, func() bool { return leave() == nil }, nil)
}

// enrolledBehind notes that a request, whose caller has left, has put an entry into the store's queue.
func (s *names) enrolledBehind(t backend.Topic, entry uint32) {
	s.engine.lock()
	defer s.engine.unlock()
	if n := s.records[t]; n.first() != nil && n.entry == entry {
		n.enrolled, n.behind = true, true
		return
	}
	s.leave(t, uint64(entry))
}
