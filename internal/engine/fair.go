package engine

import (
	"container/list"
	"errors"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/timerq"
	"github.com/mortise-go/mortise/internal/wire"
)

const (
	// keepLongest bounds the time for which the store keeps a place of a call with WithWait. A call that waits longer
	// asks again meanwhile, which keeps its place.
	keepLongest = 24 * time.Hour
	// maxAhead bounds the tickets of a name that are watched ahead of need, and the spent tickets whose watches end
	// later.
	maxAhead = 16
	// lineIdle is how long a fairQueue without waiters, and without a holder in this client, is kept.
	lineIdle = time.Second
)

// fairQueue is this client's part of a fair lock's queue: the tickets of its waiters. A ticket is an owner id, and the
// store notifies each owner under a topic of its own. Ids are never used again, so to subscribe for each Lock would
// cost two more commands, and a second request after the subscription. So the client draws ids ahead, and watches many
// of their topics at a time. A call with such a ticket need not ask a second time. Guarded by the engine's mutex.
type fairQueue struct {
	engine   *Engine
	name     string
	standing list.List                     // of *fairTicket: the waiters, oldest first
	numbered int                           // the number of the newest waiter
	ahead    []*fairTicket                 // tickets for later calls
	spent    []backend.Topic               // topics of tickets that were used: their watches end many at a time
	kept     map[backend.Topic]*fairTicket // all tickets whose topics are to be watched
	block    int                           // how many tickets to have ahead; it grows with use
	used     int64
	timer    timerq.Timer
}

// fairQueues are the fairQueue of each name with waiters, now or a short time ago.
type fairQueues struct {
	engine *Engine
	all    map[string]*fairQueue
	calls  map[string]int // the number of calls between find and leave, by name; no entry for zero
}

// fairTicket is the place of one waiting call, for the whole of its wait. Guarded by the engine's mutex, except that
// grant and taken belong to the waiting call, or once the call has left to the goroutine that awaits its reply.
type fairTicket struct {
	owner  string
	topic  backend.Topic
	live   bool          // the topic is watched
	at     *list.Element // in fairQueue.standing; nil if the ticket is not there
	number int           // rises with each ticket in standing
	// askAt is when the ticket's call asks again without a message, if it is the first of this client (monotonic); 0:
	// it was not refused yet.
	askAt int64

	grant     grant
	taken     bool // the store has given the owner a place, or the lock
	abandoned bool // the call has left: the goroutine that awaits the reply takes the owner out of the queue
}

// first returns the ticket of the oldest waiter of this client; nil if there is none.
func (l *fairQueue) first() *fairTicket {
	if front := l.standing.Front(); front != nil {
		return front.Value.(*fairTicket)
	}
	return nil
}

// before returns how many waiters of this client came before p. Waiters that have left since the first one came count.
func (l *fairQueue) before(p *fairTicket) int {
	if p.at == nil {
		return 0
	}
	return p.number - l.first().number
}

func (s *fairQueues) newPlace(name string) *fairTicket {
	owner := s.engine.OwnerID()
	return &fairTicket{owner: owner, topic: backend.Topic{Kind: backend.KindFair, Name: name, Owner: owner}}
}

// fairCall is the attempt of a call with a ticket. It is a pending command.
type fairCall struct {
	*attempt
	ticket *fairTicket
}

// queueUpFair waits for a fair lock. Each call sends its own requests, since the store has the queue. If a lease has
// run out before its grant arrived, the call takes a place at the end of the queue, with a new ticket, at most twice.
func (c *call) queueUpFair() (got *lease.Handle, err error) {
	e := c.engine
	if c.keepFor = wire.PlaceWait; c.Wait > 0 {
		c.keepFor = clock.CeilMilli(min(c.Wait, keepLongest))
	}
	e.begin() // Shutdown waits until the call has begun to leave the queue
	defer e.end()
	for n := 0; ; n++ {
		f := &fairCall{attempt: &c.attempt}
		if f.ticket, err = e.names.fair.find(c.Request); err != nil {
			return nil, err
		}
		h, late, err := f.wait()
		switch {
		case err != nil:
			return nil, err
		case late == nil:
			return &h.Handle, nil
		case n == 2:
			return nil, c.Fail(e.Explain(late))
		}
	}
}

// wait waits with the ticket. Late says why a grant came too late; nil if none did. Without the lock, wait leaves the
// store's queue, also if an observer panics.
func (f *fairCall) wait() (h *lease.Hold, late, err error) {
	defer func() {
		if h == nil && !f.ticket.abandoned {
			f.abandon()
		}
		f.engine.names.fair.leave(f.Name, f.ticket)
	}()
	err = f.waitIn(f.ticket.topic, false, func() (a Answer, err error) {
		h, a, err = f.ask()
		if late = nil; err == nil && a.Got && h == nil {
			late, a.Failure = a.Failure, nil
		}
		return a, err
	})
	return h, late, err
}

// ask asks for the lock and a place once, and makes a grant a lease.
func (f *fairCall) ask() (*lease.Hold, Answer, error) {
	c, p, e := f.attempt, f.ticket, f.engine
	c.grant = grant{owner: p.owner, sent: p.grant.sent, unknown: p.grant.unknown, until: p.grant.until}
	if err := c.enterLimit(); err != nil || c.grant.err != nil {
		return nil, Answer{Failure: c.grant.err}, err
	}
	if err := e.carryOut(c.wait, f, false); err != nil {
		p.abandoned = true
		return nil, Answer{}, err
	}
	g := &c.grant
	if g.unknown > p.grant.unknown { // as compensate: what held the request up may do so for longer than its lease
		g.until = max(g.until, e.Now().Mono+heals)
	}
	lost := p.taken && g.reply.Joined // the store had dropped the place, perhaps without a message
	p.note(g)
	switch {
	case g.err != nil:
		if errors.Is(g.err, fail.NotReplicated) {
			e.names.fair.lack(c.Name, p, c.Replicas, g.err)
		}
		return nil, Answer{Failure: g.err}, nil
	case !g.granted:
		e.names.fair.join(c.Name, p, lost)
		return nil, Answer{Left: g.reply.Remaining, AskAfter: f.nextAsk()}, nil
	case c.wait.Err() != nil:
		return nil, Answer{}, fail.Gone(c.wait)
	}
	h, err := c.makeLease(c.under)
	switch {
	case err == nil:
		return h, Answer{Got: true}, nil
	case err == fail.Closing:
		return nil, Answer{Failure: err}, nil
	}
	return nil, Answer{Got: true, Failure: err}, nil
}

func (f *fairCall) dispose() {
	f.ticket.note(&f.grant)
	f.abandon()
}

// abort notes the outcome; wait leaves the store's queue.
func (f *fairCall) abort() {
	f.replyLost()
	f.ticket.note(&f.grant)
}

// note keeps the outcome of a request. Earlier requests of unknown outcome still count after a refusal, which says
// only that none of them was granted by then.
func (p *fairTicket) note(g *grant) {
	p.grant = grant{sent: g.sent, unknown: g.unknown, until: g.until}
	p.taken = p.taken || g.err == nil
	switch {
	case g.err != nil || g.granted || g.unknown == 0:
	case g.asked.Mono >= g.until:
		p.grant = grant{} // no request can take effect any more
	default:
		p.grant.sent = g.asked
	}
}

// nextAsk returns when the call asks again without a message. The first in the store's queue asks when the holder's
// lease ends, the others later, in case the first is dead. While the lock is held, one call of each client suffices
// for that. The others ask now and then, so that the store does not drop their places.
func (f *fairCall) nextAsk() time.Duration {
	c, e, reply := f.call, f.engine, &f.grant.reply
	after := reply.AskAfter
	if after < 0 {
		after = endlessRecheck
	}
	e.lock()
	f.ticket.askAt = e.Now().Mono + int64(after)
	if l := e.names.fair.all[c.Name]; l != nil && reply.Remaining != 0 { // the lock is held: the first of this client asks
		if n := l.before(f.ticket); n > 0 {
			after += time.Duration(n) * endlessRecheck
		} else {
			after = min(after, upTo(min(recheck, backend.Patience)).Truncate(time.Millisecond)) // stores count milliseconds
		}
	}
	e.unlock()
	if c.Wait == 0 || c.Wait > c.keepFor {
		after = min(after, c.keepFor/2)
	}
	return after
}

// abandon undoes, in the background, what the ticket's requests got or may still get.
func (f *fairCall) abandon() {
	p, e := f.ticket, f.engine
	late := p.grant.unknown
	switch {
	case late == 0 && !p.taken:
		return
	case late > 0 && p.taken:
		late++ // the place, or the lock, counts as well
	}
	e.lock()
	defer e.unlock()
	e.renewer.leaveFairQueue(debt{
		name: f.Name, owner: p.owner, keepFor: f.call.keepFor, unknown: late, until: p.grant.until,
	})
}

// find returns a ticket whose topic is watched already, or a new one; or the error of a call that WithMaxWaiters
// refuses. A later leave returns the ticket.
func (s *fairQueues) find(r Request) (*fairTicket, error) {
	e, name := s.engine, r.Name
	e.lock()
	defer e.unlock()
	waiters := s.calls[name]
	if r.Full(waiters) {
		left := time.Duration(0)
		if n := e.names.records[lockTopic(name)]; n != nil {
			left = n.Blocks(false, e.Now())
		}
		return nil, r.Crowded(waiters, left)
	}
	s.calls[name] = waiters + 1
	if l := s.all[name]; l != nil {
		for i, p := range l.ahead {
			if p.live {
				l.ahead = slices.Delete(l.ahead, i, i+1)
				return p, nil
			}
		}
	}
	return s.newPlace(name), nil
}

// join notes that p has a place, and watches its topic, with topics ahead of need. Lost: the store had dropped the
// place, so p now has the last one, and the next waiter of this client asks whether it still has its place.
func (s *fairQueues) join(name string, p *fairTicket, lost bool) {
	e := s.engine
	e.lock()
	if e.calls.shut || p.at != nil && !lost { // one that is shut down forgets its queues
		e.unlock()
		return
	}
	l := s.all[name]
	if l == nil {
		l = &fairQueue{engine: e, name: name, kept: make(map[backend.Topic]*fairTicket)}
		s.all[name] = l
	}
	l.remove(p)
	l.numbered++
	p.at, p.number = l.standing.PushBack(p), l.numbered
	l.used = e.Now().Mono
	if !l.timer.Waits() {
		e.renewer.timers.Put(&l.timer, l.used+int64(lineIdle), l)
	}
	// The topic of the plain lock comes first: once the topic of p is watched, both are.
	topics := append([]backend.Topic{lockTopic(name)}, l.listen(p)...)
	e.unlock()
	for _, t := range topics {
		e.names.watches.sync(t)
	}
}

// listen returns the topics to watch for p, and ahead of need.
func (l *fairQueue) listen(p *fairTicket) (topics []backend.Topic) {
	if l.kept[p.topic] == nil {
		l.kept[p.topic] = p
		topics = append(topics, p.topic)
	}
	if 2*len(l.ahead) > l.block {
		return topics
	}
	for len(l.ahead) < l.block {
		next := l.engine.names.fair.newPlace(l.name)
		l.kept[next.topic] = next
		l.ahead = append(l.ahead, next)
		topics = append(topics, next.topic)
	}
	l.block = min(max(2*l.block, 1), maxAhead)
	return topics
}

// lack tells the waiters of a name, except p, of an attempt that had too few replicas.
func (s *fairQueues) lack(name string, p *fairTicket, wanted Replicas, err error) {
	e := s.engine
	e.lock()
	defer e.unlock()
	l := s.all[name]
	if l == nil {
		return
	}
	for at := l.standing.Front(); at != nil; at = at.Next() {
		x := at.Value.(*fairTicket)
		if n := e.names.records[x.topic]; x != p && n != nil && n.waiters != nil {
			n.lack(wanted, err)
		}
	}
}

// leave notes that the call of p has left the queue.
func (s *fairQueues) leave(name string, p *fairTicket) {
	e := s.engine
	e.lock()
	defer e.unlock()
	if s.calls[name]--; s.calls[name] == 0 {
		delete(s.calls, name)
	}
	l := s.all[name]
	if l == nil {
		return
	}
	l.remove(p)
	l.used = e.Now().Mono
	if l.kept[p.topic] != p {
		return
	}
	if l.spent = append(l.spent, p.topic); len(l.spent) >= maxAhead {
		for _, t := range l.spent {
			delete(l.kept, t)
			e.after(func() { e.names.watches.sync(t) })
		}
		l.spent = nil
	}
}

// remove takes p out of standing.
func (l *fairQueue) remove(p *fairTicket) {
	if p.at == nil {
		return
	}
	wasFirst := l.first() == p
	l.standing.Remove(p.at)
	if p.at = nil; wasFirst {
		l.succeed()
	}
}

// succeed makes the new first ticket of this client ask as a first one does. Its next request was planned while other
// tickets were before it, and the holder may be dead by then.
func (l *fairQueue) succeed() {
	p := l.first()
	if p == nil {
		return
	}
	q := l.engine.names.records[p.topic].queue()
	switch {
	case q == nil || p.askAt == 0:
	case q.Asking(): // the answer may plan the next request as for the old place
		q.Notify()
	default:
		q.RetryBy(p.askAt)
	}
}

// Fire drops the queue if no call has needed it for lineIdle.
func (l *fairQueue) Fire(now clock.Instant) {
	e := l.engine
	idle := l.standing.Len() == 0 && e.names.records[lockTopic(l.name)].holder() == nil
	if !e.calls.shut && (!idle || now.Mono < l.used+int64(lineIdle)) {
		if !idle {
			l.used = now.Mono
		}
		e.renewer.timers.Put(&l.timer, l.used+int64(lineIdle), l)
		return
	}
	delete(e.names.fair.all, l.name)
	for t := range l.kept {
		e.after(func() { e.names.watches.sync(t) })
	}
	e.after(func() { e.names.watches.sync(lockTopic(l.name)) })
}

// listening notes that t is watched.
func (l *fairQueue) listening(t backend.Topic) {
	switch {
	case t.Kind == backend.KindFair && l.kept[t] != nil:
		l.kept[t].live = true
	case t.Kind == backend.KindLock && l.standing.Len() > 0 && l.first().live:
		l.notify() // if its own topic is not watched yet, the first asks once it is
	}
}

// notify makes the first waiter ask.
func (l *fairQueue) notify() {
	if p := l.first(); p != nil {
		l.engine.names.notify(p.topic)
	}
}

// barged notes a release of the plain lock: the store may not have notified the fair queue. If the lock is free and
// the waiter that asks is not the first in the store's queue, the store notifies the first.
func (s *fairQueues) barged(t backend.Topic) {
	if l := s.all[t.Name]; l != nil && t.Kind == backend.KindLock {
		l.notify()
	}
}
