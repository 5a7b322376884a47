package mortise

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

const (
	// keepPlace is for how long a place is kept without WithWait: Redisson's
	// fairLockWaitTimeout.
	keepPlace = 5 * time.Minute
	// keepLongest is for how long it is kept with WithWait. Who waits longer asks meanwhile.
	keepLongest = 24 * time.Hour
	// mostAhead is how many places of a name are listened for ahead of need, and how
	// many are given up at once.
	mostAhead = 16
	// lineIdle is how long those are kept that nobody has needed.
	lineIdle = time.Second
)

// line is what a client keeps of a fair lock's queue: its own places in it. Each is
// an owner's, and told of its turn on a channel of its own. An owner's id is never
// used again, so to listen for each would cost two commands more for each Lock, and
// one to ask again once it is heard. Therefore ids are chosen ahead, and listened for
// many at a time; who then asks need not ask again. Guarded by Client.mu.
type line struct {
	client   *Client
	name     string
	standing list.List                // of *place: the waiters, in the order in which they came
	seats    int                      // numbers those
	ahead    []*place                 // for those to come
	spent    []backend.Topic          // of those who have left: given up many at a time
	kept     map[backend.Topic]*place // all that is listened for
	block    int                      // how many to have ahead
	used     int64
	timed    timed
}

// place is where one who waits for a fair lock stands, for the whole of its wait.
type place struct {
	owner string
	topic backend.Topic
	live  bool          // its topic is watched. Guarded by Client.mu
	at    *list.Element // in the line; nil if it does not stand there. Guarded by Client.mu
	seat  int           // numbers it among those that stand there. Guarded by Client.mu
	// look is when it asks again if it is the first of this client's in line, though nothing
	// happened (monotonic); 0 if it has not been refused. Guarded by Client.mu
	look int64

	// What its requests came to: for the one who waits, or for the one who finds the
	// reply that it did not wait for.
	asked  grant
	taken  bool // the store has given it a place, or the lock
	orphan bool // the reply is found by another, who then leaves the line
}

// first is the waiter of this client that came first; nil if there is none.
func (l *line) first() *place {
	if front := l.standing.Front(); front != nil {
		return front.Value.(*place)
	}
	return nil
}

// before is how many waiters of this client came before p, about: waiters that left are counted.
func (l *line) before(p *place) int {
	if p.at == nil {
		return 0
	}
	return p.seat - l.first().seat
}

func (c *Client) newPlace(name string) *place {
	owner := c.newOwnerID()
	return &place{owner: owner, topic: backend.Topic{Kind: backend.KindFair, Name: name, Owner: owner}}
}

// standInLine waits for a fair lock. Each asks for itself, since the store has the
// order. If its lease ran out before it heard of it, it goes to the end of the line.
func (c *Client) standInLine(ctx, wait context.Context, r *request) (lease *Lease, err error) {
	if r.queue = keepPlace; r.wait > 0 {
		r.queue = ceilMilli(min(r.wait, keepLongest))
	}
	c.begin() // Shutdown waits until it has left the line
	defer c.end()
	for n := 0; ; n++ {
		p := c.findPlace(r.name)
		var failure error // not nil: it was granted, too late
		err = c.stand(wait, p.topic, r, func() (answer, error) {
			var a answer
			var err error
			lease, a, err = c.askInLine(ctx, wait, r, p)
			if failure = nil; err == nil && a.got && lease == nil {
				failure, a.failure = a.failure, nil
			}
			return a, err
		})
		if lease == nil && !p.orphan {
			c.abandonPlace(r, p)
		}
		c.leavePlace(r.name, p)
		switch {
		case err != nil || failure == nil:
			return lease, err
		case n == 2:
			return nil, r.fail(c.explain(failure))
		}
	}
}

// askInLine asks for the lock and a place, and settles what becomes of it.
func (c *Client) askInLine(ctx, wait context.Context, r *request, p *place) (*Lease, answer, error) {
	if err := c.place(wait, r); err != nil {
		if caller := (*callerGone)(nil); errors.As(err, &caller) {
			return nil, answer{}, err
		}
		return nil, answer{failure: err}, nil
	}
	r.placed = false
	g := new(grant)
	before := p.asked
	err := dispatch(c, wait, func() error {
		defer c.passed(c.gateOf(r))
		*g = c.ask(r, p.owner, before)
		return nil
	}, func() {
		p.note(g)
		c.abandonPlace(r, p)
	})
	if err != nil {
		p.orphan = true
		return nil, answer{}, err
	}
	p.note(g)
	switch {
	case g.err != nil:
		return nil, answer{failure: g.err}, nil
	case !g.granted:
		c.joinLine(r.name, p)
		return nil, answer{left: g.remaining, look: c.nextLook(r, p, g)}, nil
	case wait.Err() != nil:
		return nil, answer{}, gone(wait)
	}
	lease, err := c.settle(ctx, r, p.owner, g)
	switch {
	case err == nil:
		return lease, answer{got: true}, nil
	case errors.Is(err, errClosing):
		return nil, answer{failure: err}, nil
	}
	return nil, answer{got: true, failure: err}, nil
}

// note keeps what a request came to. Its outcome being unknown is not forgotten for a
// later one's being known: a refusal says only that none had got the lock by then.
func (p *place) note(g *grant) {
	p.asked = grant{sent: g.sent, late: g.late, lateUntil: g.lateUntil}
	p.taken = p.taken || g.err == nil
	switch {
	case g.err != nil || g.granted || g.late == 0:
	case g.asked.mono >= g.lateUntil:
		p.asked = grant{} // none can get it any more
	default:
		p.asked.sent = g.asked
	}
}

// nextLook is when to ask again though it was not told: the first in the queue, when
// the holder's lease is over; the others a little later, in case the first is dead.
// One of them is enough for each client; the others look now and then, so that the
// store does not take them for dead.
func (c *Client) nextLook(r *request, p *place, g *grant) time.Duration {
	look := g.look
	if look < 0 {
		look = lookAgain
	}
	c.mu.Lock()
	p.look = c.now().mono + int64(look)
	if g.remaining > 0 { // held: one of this client's looks, the first
		if l := c.lines[r.name]; l != nil {
			look += time.Duration(l.before(p)) * lookAgain
		}
	}
	c.mu.Unlock()
	if r.wait == 0 || r.wait > r.queue {
		look = min(look, r.queue/2)
	}
	return look
}

// abandonPlace undoes, in the background, what p's requests came to, or may yet.
func (c *Client) abandonPlace(r *request, p *place) {
	late := p.asked.late
	switch {
	case late == 0 && !p.taken:
		return
	case late > 0 && p.taken:
		late++ // the place, or the lock, is found as well
	}
	c.mu.Lock()
	c.leaveLineLocked(r.name, p.owner, r.queue, late, p.asked.lateUntil)
	c.mu.Unlock()
}

// leaveLineLocked takes an owner out of a fair lock's queue, and gives back the lock
// if it holds it. late is how many of its requests are to be found, until they can no
// longer take effect; one answer after that is enough, as it is if late is zero.
func (c *Client) leaveLineLocked(name, owner string, place time.Duration, late int, until int64) {
	s, ok := c.session.(backend.FairSession)
	if !ok {
		return
	}
	giveUp := max(until, c.now().mono) + int64(max(place, c.watchdog))
	var p *repetition
	p = c.repeatLocked(name, giveUp, func() bool {
		last := late == 0 || c.now().mono >= until
		reply, err := s.Leave(c.base, backend.LeaveRequest{Name: name, Owner: owner, Wait: place})
		if err != nil {
			return false
		}
		p.rarely(until)
		if reply.Held {
			(*events)(c).Released(lockTopic(name))
		}
		if reply.Held || reply.Queued {
			late--
		}
		return last || late <= 0
	}, nil)
}

// findPlace returns a place that is listened for already, if there is one.
func (c *Client) findPlace(name string) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lines[name]; l != nil {
		for i, p := range l.ahead {
			if p.live {
				l.ahead = slices.Delete(l.ahead, i, i+1)
				return p
			}
		}
	}
	return c.newPlace(name)
}

// joinLine notes that p stands in the queue, and has it listened for, with some more.
func (c *Client) joinLine(name string, p *place) {
	c.mu.Lock()
	l := c.lines[name]
	if l == nil {
		l = &line{client: c, name: name, kept: make(map[backend.Topic]*place)}
		l.timed.fire = l.tick
		c.lines[name] = l
	}
	if c.shut || p.at != nil {
		c.mu.Unlock()
		return
	}
	l.seats++
	p.at, p.seat = l.standing.PushBack(p), l.seats
	l.used = c.now().mono
	if l.timed.pos == 0 {
		c.put(&l.timed, l.used+int64(lineIdle))
	}
	// The plain lock's topic comes first: once p's own is watched, it is, too.
	topics := []backend.Topic{lockTopic(name)}
	if l.kept[p.topic] == nil {
		l.kept[p.topic] = p
		topics = append(topics, p.topic)
	}
	if 2*len(l.ahead) <= l.block {
		for len(l.ahead) < l.block {
			next := c.newPlace(name)
			l.kept[next.topic] = next
			l.ahead = append(l.ahead, next)
			topics = append(topics, next.topic)
		}
		l.block = min(max(2*l.block, 1), mostAhead)
	}
	c.mu.Unlock()
	for _, t := range topics {
		c.syncWatch(t)
	}
}

// leavePlace notes that nobody stands at p any more.
func (c *Client) leavePlace(name string, p *place) {
	c.mu.Lock()
	l := c.lines[name]
	if l == nil {
		c.mu.Unlock()
		return
	}
	if p.at != nil {
		wasFirst := l.first() == p
		l.standing.Remove(p.at)
		if p.at = nil; wasFirst {
			l.succeed()
		}
	}
	l.used = c.now().mono
	var drop []backend.Topic
	if l.kept[p.topic] == p {
		l.spent = append(l.spent, p.topic)
		if len(l.spent) >= mostAhead {
			drop, l.spent = l.spent, nil
			for _, t := range drop {
				delete(l.kept, t)
			}
		}
	}
	c.mu.Unlock()
	for _, t := range drop {
		c.syncWatch(t)
	}
}

// succeed has the one who is first of this client's now look as the first does: it
// asked when others were before it who would, and whoever holds the lock by then may be dead.
func (l *line) succeed() {
	p := l.first()
	if p == nil {
		return
	}
	q := l.client.queues[p.topic]
	switch {
	case q == nil || p.look == 0:
	case q.retryAt == never: // it is asking, and may have taken its time to look from its old place
		q.stir()
	case q.retryAt > p.look:
		q.retryAt = p.look
		q.wake()
	}
}

// tick forgets a line that nobody has needed for a while.
func (l *line) tick(now instant, fx *effects) {
	c := l.client
	q := c.queues[lockTopic(l.name)]
	idle := l.standing.Len() == 0 && (q == nil || q.holder == nil)
	if !c.shut && (!idle || now.mono < l.used+int64(lineIdle)) {
		if !idle {
			l.used = now.mono
		}
		c.put(&l.timed, l.used+int64(lineIdle))
		return
	}
	delete(c.lines, l.name)
	fx.then(func() {
		for t := range l.kept {
			c.syncWatch(t)
		}
		c.syncWatch(lockTopic(l.name))
	})
}

// listening notes that t is watched.
func (c *Client) listening(t backend.Topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lines[t.Name]
	switch {
	case l == nil:
	case t.Kind == backend.KindFair && l.kept[t] != nil:
		l.kept[t].live = true
	case t.Kind == backend.KindLock && l.standing.Len() > 0 && l.first().live:
		l.stir() // one that is not listened for yet asks when it is
	}
}

// stir has the first in line ask.
func (l *line) stir() {
	if p := l.first(); p != nil {
		if q := l.client.queues[p.topic]; q != nil {
			q.stir()
		}
	}
}

// barged notes that the plain lock was released, which its queue may not have been
// told of. Whoever asks for a free lock out of turn has the first in the queue told.
func (c *Client) barged(t backend.Topic) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lines[t.Name]; l != nil && t.Kind == backend.KindLock {
		l.stir()
	}
}

// holderOf is who holds, in this client, what q waits for.
func (c *Client) holderOf(q *queue) *owner {
	if q.topic.Kind == backend.KindFair {
		if q = c.queues[lockTopic(q.topic.Name)]; q == nil {
			return nil
		}
	}
	return q.holder
}
