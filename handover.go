package mortise

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// handover is a release that gives the lock to the first waiter of the same client in the
// same command.
type handover struct {
	from  *owner
	to    *waiter
	owner string // the successor's id
	sent  instant
	req   backend.HandOverRequest
	// era, events and inTurn are its waiters', as of then.
	era    uint64
	events uint64
	inTurn bool
	// changes of the record that were told before: if there are more, who gets it asks whether it is there.
	changes int
	passes  bool // nothing needs to be sent

	reply   backend.HandOverReply
	failure error
}

// handed is what a handover got for the one who waits.
type handed struct {
	owner string
	grant grant
}

// handover prepares to hand o's lock over; nil if it is to be released for all. Those elsewhere
// who wait know when o's lease is over, and ask then: a successor's ends no earlier. It is called with
// the mutex, and with o's turn.
func (o *owner) handover() *handover {
	c, q := o.client, o.queue
	if c.relay == nil || o.kind() != backend.KindLock || o.state != ownerReleasing || q.holder != o || c.shut {
		return nil
	}
	w := q.first()
	if w == nil || w.request == nil || w.request.ttl < o.ttl {
		return nil
	}
	if l := c.lines[q.topic.Name]; l != nil && l.standing.Len() > 0 {
		return nil // they wait for the same lock
	}
	h := &handover{from: o, to: w, owner: c.newOwnerID(), sent: c.now(), era: q.era, events: q.events, inTurn: q.inTurn, changes: q.changes}
	h.passes = o.passes(w, h.sent) && q.quota > 0
	h.req = backend.HandOverRequest{
		Name: q.topic.Name, Owner: o.id, Successor: h.owner,
		Lease: w.request.ttl, Fenced: w.request.kind.Fenced,
		Yield: q.quota <= 0, Waits: c.hears(q.topic),
	}
	// What it tells may arrive before its reply.
	q.inTurn = q.inTurn || h.req.Yield && h.req.Waits
	return h
}

// send sends it.
func (h *handover) send(ctx context.Context) error {
	h.reply, h.failure = h.from.client.relay.HandOver(ctx, h.req)
	return h.failure
}

// settle passes on what it came to, with the mutex; held tells whether a release that followed
// found the lock held, so that the handover has not run. It tells whether the first waiter is
// to ask the store now. What was got for one who has left goes back. Shutdown waits for one who
// has been handed the lock and does not know it yet.
func (h *handover) settle(held bool) (ask bool) {
	o, w := h.from, h.to
	c, q := o.client, o.queue
	g := grant{passed: true, granted: h.reply.Granted, token: h.reply.Token, sent: h.sent, asked: h.sent, changes: h.changes}
	if h.failure != nil && !held {
		g.blame(h.failure, h.sent, h.req.Lease)
	}
	if !h.reply.Waits && q.waiters != nil {
		q.inTurn = q.inTurn && h.inTurn
	}
	switch {
	case g.granted && !w.left:
		w.handed = &handed{owner: h.owner, grant: g}
		c.running++
		if q.quota--; h.req.Yield {
			q.quota = q.turns()
		}
	case g.granted || g.late > 0:
		c.abandonLocked(w.request, h.owner, &g)
	case h.reply.Waits && q.first() != nil:
		q.inTurn, q.refused = true, true
		q.retryAt = c.now().mono + int64(c.watchdog)
		if q.era == h.era { // else they came later, and are to ask
			q.seen = max(q.seen, h.events)
		}
		return false
	case h.reply.Waits:
		c.expect(q)
		q.inTurn = true // tidy then steps back
	}
	return true
}

// turns is how often the lock is handed over before others get their turn: those who wait now
// get it, and those who come later do not keep others out.
func (q *queue) turns() int {
	if q.waiters == nil {
		return 1
	}
	return min(max(q.length, 1), mostInARow)
}
