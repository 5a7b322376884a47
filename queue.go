package mortise

import (
	"time"

	"github.com/mortise-go/mortise/backend"
)

// queue is what a client knows of one name: its own holder, and its own waiters in
// the order in which they came. Guarded by Client.mu.
type queue struct {
	topic  backend.Topic
	holder *owner // exclusive
	// readers are those of a read-write lock; beside a holder, those that it let in.
	readers map[*owner]struct{}
	// quota is how many more times the lock is handed over here before others get their turn.
	quota int
	// changes counts how often the record was changed by others, as far as was told.
	changes int

	*waiters // nil where nobody waits
}

// waiters are those who wait for one name. Only the first asks the store, and only when
// something happened since it last asked: that is what keeps the number of commands
// independent of the number of waiters.
type waiters struct {
	era    uint64 // numbers the client's
	head   *waiter
	tail   *waiter
	length int // how many wait

	// events counts what may have freed the lock; seen is events as of the last time
	// the head asked. A head that leaves before it knows the answer counts one more, so
	// that a wake-up it was given is not lost with it.
	events, seen uint64
	// retryAt is when the head is to ask though nothing happened (monotonic).
	retryAt int64
	// ends is when the holder's lease ends, as the store last said (monotonic).
	ends int64
	// refused: the store has refused the head, so waiters watch for releases.
	refused bool
	// answered: the store has said that it is held.
	answered bool
	// trouble is since when the store fails; zero if it does not.
	trouble time.Time
	// seats numbers the waiters.
	seats uint64
	// deaf is why releases cannot be heard of, if so: waiting makes no sense then.
	deaf error

	// checkAt is when the head is to ask though it was not told (monotonic): because the record
	// changed, or because another client was told of a release, and may stay silent.
	checkAt int64
	// sleeps is until when the head sleeps (monotonic).
	sleeps int64
	// free is how many permits of a semaphore there were when the head was last refused.
	free int64
	// inTurn: the store tells this client when it is its turn, and tells others before: see turn.go.
	inTurn bool

	// hinted is when a change of the record last made the head ask, hint when one will.
	hinted int64
	hint   timed
}

type waiter struct {
	prev, next *waiter
	ready      chan struct{} // capacity 1; told to look again; nil until it sleeps
	seat       uint64
	served     bool // what it waits for is so: another's question was answered for it too

	permits int64                 // of a semaphore, how many it waits for; zero elsewhere
	taken   *backend.CountRequest // the request that took them, where the head's question did: see served
	request *request              // if it can be handed the lock
	left    bool                  // it does not wait any more
	handed  *handed               // it has the lock
}

func lockTopic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }

// topicOf is where releases of a kind of lock are announced, and whose queue its
// waiters stand in. The two sides of a read-write lock share one.
func topicOf(family backend.Kind, name string) backend.Topic {
	switch family {
	case backend.KindRead:
		family = backend.KindWrite
	case backend.KindFair, backend.KindNested: // where the holder is; those who wait have topics of their own
		family = backend.KindLock
	}
	return backend.Topic{Kind: family, Name: name}
}

func (c *Client) queueOf(t backend.Topic) *queue {
	q := c.queues[t]
	if q == nil {
		q = &queue{topic: t}
		c.queues[t] = q
	}
	return q
}

// mostSpare bounds what is kept for those who will wait.
const mostSpare = 128

// expect makes room for one who waits for q.
func (c *Client) expect(q *queue) {
	if q.waiters != nil {
		return
	}
	if n := len(c.spare); n > 0 {
		q.waiters, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		q.waiters = new(waiters)
	}
	c.eras++
	q.era = c.eras
	q.events, q.retryAt, q.ends, q.checkAt = 1, never, never, never
}

// tidy forgets what nobody needs.
func (c *Client) tidy(q *queue) {
	if q.first() != nil {
		return
	}
	if w := q.waiters; w != nil { // what the next waiter knows of the answer is nothing
		c.stepBack(q)
		c.sched.remove(&w.hint)
		q.waiters, *w = nil, waiters{}
		if len(c.spare) < mostSpare {
			c.spare = append(c.spare, w)
		}
	}
	if !q.inUse() && c.queues[q.topic] == q {
		delete(c.queues, q.topic)
	}
}

// first is the one who asks the store; nil if nobody waits.
func (q *queue) first() *waiter {
	if q.waiters == nil {
		return nil
	}
	return q.head
}

func (q *waiters) push(w *waiter) {
	q.seats++
	q.length++
	w.seat = q.seats
	if q.tail == nil {
		q.head, q.tail = w, w
		return
	}
	w.prev, q.tail.next, q.tail = q.tail, w, w
}

// remove takes w out; the one who is head then looks for itself.
func (q *queue) remove(w *waiter) {
	first := q.head == w
	q.length--
	w.left = true
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	w.prev, w.next = nil, nil
	if first {
		q.wake()
	}
}

// serve tells all up to a seat that what they wait for is so.
func (q *queue) serve(seat uint64) {
	for w := q.first(); w != nil && w.seat <= seat; w = w.next {
		w.served = true
		select {
		case w.ready <- struct{}{}:
		default:
		}
	}
}

// stir notes that the lock may be free and wakes the head, unless the lock is held
// here: then the head is woken when it no longer is.
func (q *queue) stir() {
	if q.waiters != nil {
		q.events++
		q.wake()
	}
}

func (q *queue) wake() {
	if w := q.first(); w != nil && q.holder == nil {
		select {
		case w.ready <- struct{}{}:
		default:
		}
	}
}

// watch is a topic that the session was asked to watch.
type watch struct {
	confirmed bool  // it has told so
	idle      timed // when it is given up, if nobody wants it
}

// watchIdle is for how long a plain lock is watched though nobody waits: who comes soon after
// another need not ask again once it is.
const watchIdle = time.Second

// syncWatch makes the session watch t if and only if somebody waits for another
// process to release it, or did just now. The session is called outside of Client.mu, and in order.
func (c *Client) syncWatch(t backend.Topic) {
	c.mu.Lock()
	settled := c.watchSettled(t)
	c.mu.Unlock()
	if settled {
		return // whoever changes one of them comes here afterwards
	}
	c.watchMu.Lock()
	defer c.watchMu.Unlock()
	c.mu.Lock()
	if c.watchSettled(t) {
		c.mu.Unlock()
		return
	}
	w := c.watched[t]
	if w == nil {
		c.watched[t] = new(watch)
	} else {
		delete(c.watched, t)
	}
	c.mu.Unlock()
	if w == nil {
		c.session.Watch(t)
	} else {
		c.session.Unwatch(t)
	}
}

// watchSettled tells whether t is watched as it is to be. It has a watch that nobody wants
// any more looked at again.
func (c *Client) watchSettled(t backend.Topic) bool {
	w := c.watched[t]
	switch {
	case c.wantsWatch(t):
		if w != nil {
			c.sched.remove(&w.idle)
			w.idle.fire = nil
		}
		return w != nil
	case w == nil:
		return true
	case t.Kind != backend.KindLock || c.relay == nil || c.shut:
		c.sched.remove(&w.idle)
		return false
	case w.idle.fire == nil:
		w.idle.fire = func(_ instant, fx *effects) { fx.then(func() { c.syncWatch(t) }) }
		c.put(&w.idle, c.now().mono+int64(watchIdle))
		return true
	}
	return w.idle.pos != 0 // else its time is over
}

func (c *Client) wantsWatch(t backend.Topic) bool {
	l := c.lines[t.Name]
	if t.Kind == backend.KindFair {
		return l != nil && l.kept[t] != nil && !c.shut
	}
	if l != nil && t.Kind == backend.KindLock && !c.shut {
		return true // releases of the plain lock are announced there
	}
	q := c.queues[t]
	return q != nil && q.first() != nil && q.refused && !c.shut
}

// events is the Client as its session sees it.
type events Client

var (
	_ backend.Handler     = (*events)(nil)
	_ backend.WatchFailer = (*events)(nil)
	_ backend.TurnHandler = (*events)(nil)
)

func (e *events) Watching(t backend.Topic) {
	c := (*Client)(e)
	c.listening(t)
	c.mu.Lock()
	if w := c.watched[t]; w != nil {
		w.confirmed = true
	}
	c.mu.Unlock()
	e.stir(t, nil)
}

func (e *events) Released(t backend.Topic) {
	(*Client)(e).barged(t)
	e.stir(t, nil)
}

// WatchFailed tells that t cannot be watched, for a reason that does not pass by itself.
func (e *events) WatchFailed(t backend.Topic, err error) { e.stir(t, err) }

func (e *events) stir(t backend.Topic, deaf error) {
	c := (*Client)(e)
	c.mu.Lock()
	if q := c.queues[t]; q != nil {
		if q.waiters != nil { // else it comes late and concerns nobody
			q.deaf = deaf
		}
		q.stir()
	}
	c.mu.Unlock()
}

// Changed: a waiter looks, a holder asks whether it still holds.
func (e *events) Changed(t backend.Topic) {
	c := (*Client)(e)
	c.mu.Lock()
	if q := c.queues[t]; q != nil {
		c.changed(q)
	}
	c.askNested(t)
	c.mu.Unlock()
}

func (e *events) ChangedAll() {
	c := (*Client)(e)
	c.mu.Lock()
	for _, q := range c.queues {
		c.changed(q)
		if o := q.holder; o != nil && o.lent.Load() {
			o.ask()
		}
	}
	for _, o := range c.permits {
		o.ask()
	}
	c.mu.Unlock()
}

func (c *Client) changed(q *queue) {
	if q.topic.Kind == backend.KindWrite {
		c.changedRW(q)
		return
	}
	q.changes++
	if q.holder != nil {
		q.holder.hinted()
	}
	if q.first() != nil && q.inTurn {
		c.hintTurn(q)
		return
	}
	q.stir()
}

// ask has the store asked whether o still holds what it holds.
func (o *owner) ask() {
	if o.state == ownerLive {
		o.verify = true
		if now := o.client.now().mono; o.lent.Load() {
			o.checkAt = now // a renewal would be a change, of which the others are told
		} else {
			o.renewAt = now
		}
		o.client.reschedule(o)
	}
}
