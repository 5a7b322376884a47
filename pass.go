package mortise

import "time"

// passWithin is for how long after the store's last word on a lease it is passed on.
const passWithin = 250 * time.Millisecond

// passes tells whether w can go on where o ends: with o's record in the store as it is,
// under o's id, which stands for one visit of this client then. Nothing is sent. What the store
// said, it said just now, so w's lease is as long as one that it would get; and there is nothing of o's on its way, nor
// anybody who has o's id from o, that could touch w's lock: o was held once, was not lent, asked for nothing twice, and
// no renewal is being answered.
func (o *owner) passes(w *waiter, now instant) bool {
	r := w.request
	return !o.fenced && !r.kind.Fenced &&
		o.first.watchdog && o.first.maxHold == 0 && r.lease == 0 && r.maxHold == 0 &&
		!o.entered && !o.lent.Load() && !o.renewing && !o.verify && o.trouble == nil &&
		o.deadline.until(now) > o.ttl-margin(o.ttl)-min(passWithin, o.ttl/4)
}

// pass does it, if it is to be done and still can be: the first waiter may be another by now. It gives o's turn back.
func (h *handover) pass() bool {
	if h == nil || !h.passes {
		return false
	}
	o := h.from
	c, q := o.client, o.queue
	now := c.now()
	c.mu.Lock()
	w := q.first()
	if o.state != ownerReleasing || q.holder != o || o.line != nil || c.shut || w != h.to || q.changes != h.changes || !o.passes(w, now) {
		c.mu.Unlock()
		return false
	}
	sent := o.deadline.add(margin(o.ttl) - o.ttl)
	w.handed = &handed{owner: o.id, grant: grant{granted: true, passed: true, sent: sent, asked: now, changes: h.changes}}
	if o.checkAt != never {
		w.handed.grant.confirm = o.checkAt
	}
	c.running++
	q.quota--
	o.state = ownerOver
	o.passed = true
	c.vacate(o, true)
	o.leave()
	c.mu.Unlock()
	return true
}
