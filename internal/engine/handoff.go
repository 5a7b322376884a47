package engine

import (
	"cmp"
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/lease"
)

// handoff is a release that grants the lock to the first waiter of the same client: locally, without a command, or by
// the command that releases it.
type handoff struct {
	from  *tenure
	to    *waiter
	owner string // the owner id of the waiter's tenure, unless the handoff is local
	sent  clock.Instant
	req   backend.ServeRequest
	// events and enrolled are the waiters' state when the handoff began.
	events   uint64
	enrolled bool
	// changes is the record's count of changes when the handoff began. If it differs when the waiter takes the grant,
	// the new tenure verifies.
	changes int32
	isLocal bool // the handoff needs no command

	reply   backend.ServeReply
	failure error
}

// newHandoff prepares to hand t's record to the first waiter; nil if t must be released for all clients. Waiters of
// other clients ask when t's lease ends, so the waiter's lease must not be shorter. It is called with the mutex, while
// the release is the running operation of t's Order.
func newHandoff(t *tenure) *handoff {
	e, n := t.engine, t.name
	if !handsOff(t) {
		return nil
	}
	w := n.first()
	if w == nil || w.call == nil || w.handoffGrant != nil || w.call.ttl < t.TTL {
		return nil
	}
	if n.place.asking {
		return nil // the request on its way may be granted, and two owners of one waiter must not wait
	}
	if l := e.names.fair.all[n.topic.Name]; l != nil && l.standing.Len() > 0 {
		return nil // waiters for the fair lock of the same name come first
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
	if e.store.can.Grants {
		h.req.Instead = e.names.serves(n, w.call, h.owner)
		h.req.Told = n.place.told
	}
	// Messages about the entry that Serve enrols may arrive before its reply.
	n.enrolled = n.enrolled || h.req.Yield && e.names.watches.confirmed(n.topic)
	return h
}

// handsOff reports whether t can be handed over at all: a plain lock, with a queue in the store, that is being
// released.
func handsOff(t *tenure) bool {
	e := t.engine
	return e.store.can.Queue != nil && !e.calls.shut && t.kind() == backend.KindLock &&
		t.State == lease.Releasing && t.name.Holder == &t.Tenure
}

// localWithin bounds the age of the store's last confirmation of a lease that is handed over locally.
const localWithin = 250 * time.Millisecond

// fits reports whether the handoff can be local: the waiter takes over t's record in the store as it is, with t's owner
// id. Two things are required. The waiter's lease is about as long as a new one: the store has confirmed t's lease just
// now. And nothing of t can touch the waiter's lock later: t has no request on its way, or of unknown outcome, and no
// other process, and no text in the store, has t's id. So t was never entered again, delegated, or proclaimed.
func (h *handoff) fits(now clock.Instant) bool {
	t, c := h.from, h.to.call
	renewedOnly := t.First.Marks.Watchdog && t.First.MaxHold == 0 && !t.Fence.Drawn
	wantsTheSame := c.Lease == 0 && c.MaxHold == 0 && !c.Fenced
	unnamed := !t.Delegated.Load() && !t.First.Marks.Texts
	undisturbed := !t.Entered() && !t.Plan.Renewing && !t.Plan.Verify && t.trouble == nil
	least := t.TTL - clock.Margin(t.TTL) - min(localWithin, t.TTL/4)
	if t.first > 0 { // the waiter takes over the unconfirmed grant, and confirms it
		least = t.granted() / 2
	}
	return renewedOnly && wantsTheSame && unnamed && undisturbed && t.Deadline.Until(now) > least
}

// local makes a local handoff if it is still possible: the state may have changed since newHandoff. It then ends the
// running operation of t's Order.
func (h *handoff) local() bool {
	if h == nil || !h.isLocal {
		return false
	}
	t := h.from
	e, n := t.engine, t.name
	now := e.Now()
	e.lock()
	defer e.unlock()
	same := n.first() == h.to && h.to.handoffGrant == nil && n.Changes == h.changes
	if !same || !handsOff(t) || t.Waited() || !h.fits(now) {
		return false
	}
	g := &grant{granted: true, byHandoff: true, owner: t.Owner, asked: now, changes: h.changes}
	ttl := t.granted()
	g.sent = t.Deadline.Add(clock.Margin(ttl) - ttl)
	switch {
	case t.first > 0:
		g.first, g.verifyAt = t.first, t.Plan.RenewAt
	case t.Plan.VerifyAt != clock.Never:
		g.verifyAt = t.Plan.VerifyAt
	}
	n.place.served(h.owner, true, false)
	n.place.last = t.Owner // until the waiter has it
	h.to.give(g)
	n.budget.Spend()
	t.State = lease.Over
	t.handedOver = true
	t.vacate(true)
	t.Leave()
	return true
}

func (h *handoff) send(ctx context.Context) (backend.ServeReply, error) {
	return h.from.engine.store.can.Queue.Serve(ctx, h.req)
}

// settle settles the outcome of a handoff by command. It is called with the mutex. Held: the handoff failed, and the
// plain release that followed found the lock held, so the handoff had not run. If the waiter has left, or has taken
// another handoff, the grant is released. settle reports whether the first waiter must ask the store now.
func (h *handoff) settle(held bool) (ask bool) {
	t, w := h.from, h.to
	e, n := t.engine, t.name
	g := &grant{
		owner: h.owner, byHandoff: true, granted: h.reply.Granted, sent: h.sent, asked: h.sent, changes: h.changes,
	}
	g.reply.Token = h.reply.Token
	// If a late request of t's may have granted the lock to t again, the handoff may have run after that release.
	if h.failure != nil && (!held || t.trouble != nil) {
		g.blame(h.failure, h.req.Lease)
	}
	if n.waiters != nil {
		n.place.served(h.owner, h.failure != nil || !h.reply.Held, h.reply.Enrolled)
	}
	if !h.reply.Enrolled && n.waiters != nil {
		n.enrolled = n.enrolled && h.enrolled && (h.failure != nil || !e.store.can.Grants)
	}
	switch {
	case g.granted && !w.Left() && w.handoffGrant == nil:
		n.place.last = h.owner
		w.give(g)
		if n.budget.Spend(); h.req.Yield {
			n.refill(h.reply.Foreign, e.Now().Mono)
			n.budget.Extra()
		}
	case n.has(h.owner): // the message of its grant has come before this reply
	case g.granted || g.unknown > 0:
		d := debt{family: backend.KindLock, name: n.topic.Name, owner: h.owner}
		e.renewer.abandon(&w.call.Request, g, d)
	case h.reply.Enrolled && e.store.can.Grants && (n.waiters == nil || n.place.owner != h.owner):
		e.names.leave(n.topic, h.req.Entry, h.owner)
	case h.reply.Enrolled && (n.first() == nil || n.entry != uint32(h.req.Entry)):
		e.names.leave(n.topic, h.req.Entry, h.owner)
	case h.reply.Enrolled:
		n.enrolled, n.answered = true, true // not firstInStore: the message First may have come before this reply
		now := e.Now().Mono
		n.comes(now, h.reply.Untold)
		n.RetryAt(n.retry(now, now, now+int64(e.names.recheckBy(e.Config.Watchdog))))
		n.Heard(h.events)
		return false
	}
	return true
}

// withdrawEntry takes n's entry out of the store's queue, if it is there. The waiters that are left get a new entry:
// the request may arrive after they have enrolled again. It is called with the mutex.
func (s *names) withdrawEntry(n *name) {
	e := s.engine
	s.giveUp(n)
	if !n.enrolled {
		return
	}
	owner := cmp.Or(n.place.owner, n.place.instead)
	if owner != "" || !e.store.grants(n.topic.Kind) {
		s.leave(n.topic, uint64(n.entry), owner)
	}
	s.entries++
	n.entry, n.enrolled, n.firstInStore, n.place = s.entries, false, false, place{last: n.place.last, trip: n.place.trip}
}

// leave takes an entry, which asked for owner, out of the store's queue, in the background, and repeats that for as
// long as the watchdog's timeout while the store does not answer. An entry that stays delays the other clients as a
// client that stands still does. It is called with the mutex.
func (s *names) leave(t backend.Topic, entry uint64, owner string) {
	e := s.engine
	until := e.Now().Mono + int64(e.Config.Watchdog)
	leave := func() error {
		return e.store.can.Queue.Leave(e.base, backend.LeaveEntryRequest{Name: t.Name, Entry: entry, Owner: owner})
	}
	if e.store.enrols(t.Kind) {
		leave = func() error { return e.store.can.Enrolments.LeaveQueue(e.base, t, entry, owner) }
	}
	e.renewer.repeat(t.Name, until, false, func() (done bool, err error) {
		err = leave()
		return err == nil, err
	}, nil)
}

// enrolledBehind notes that a request whose caller has left has put an entry into the store's queue. If no call waits
// under the entry, enrolledBehind takes it out. Keeps: the store keeps permits for a waiter that may have left; the
// first waiter asks, and so tells the store what the waiters want now.
func (s *names) enrolledBehind(t backend.Topic, entry uint32, owner string, keeps bool) {
	s.engine.lock()
	defer s.engine.unlock()
	grants := s.engine.store.grants(t.Kind) // each owner has an entry
	if n := s.records[t]; n.first() != nil && n.entry == entry && (!grants || n.place.owner == owner) {
		n.enrolled, n.enrolledLate = true, true
		if t.Kind == backend.KindLock {
			n.comes(s.engine.Now().Mono, backend.Untold)
		}
		if keeps {
			n.Notify()
		}
		return
	}
	s.leave(t, uint64(entry), owner)
}
