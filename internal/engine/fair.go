package engine

import (
	"container/list"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/timerq"
)

const (
	// keepPlace is for how long a place is kept without WithWait: Redisson's fairLockWaitTimeout.
	keepPlace = 5 * time.Minute
	// keepLongest is for how long it is kept with WithWait. A call that waits longer asks meanwhile.
	keepLongest = 24 * time.Hour
	// maxAhead is how many tickets of a name are listened for ahead of need, and how many are given up at once.
	maxAhead = 16
	// lineIdle is how long those are kept that no call has needed.
	lineIdle = time.Second
)

// fairQueue is what a client keeps of a fair lock's queue: its own tickets. Each is an owner's, and told of its turn
// on a channel of its own. An owner's id is never used again, so to listen for each would cost two commands more for
// each Lock, and one to ask again once it is heard. Therefore ids are chosen ahead, and listened for many at a time; a
// call that then asks need not ask again. Guarded by the engine's mutex.
type fairQueue struct {
	engine   *Engine
	name     string
	standing list.List                     // of *fairTicket: the waiters, in the order in which they came
	numbered int                           // numbers those
	ahead    []*fairTicket                 // for those to come
	spent    []backend.Topic               // of those that have left: given up many at a time
	kept     map[backend.Topic]*fairTicket // all that is listened for
	block    int                           // how many to have ahead
	used     int64
	timer    timerq.Timer
}

// fairQueues are those of all fair locks that calls wait for.
type fairQueues struct {
	engine *Engine
	all    map[string]*fairQueue
}

// fairTicket is where one call stands that waits for a fair lock, for the whole of its wait. Guarded by the engine's
// mutex but for grant, which is of its requests: the waiting call's, or the one's that finds the reply that it did not
// wait for.
type fairTicket struct {
	owner  string
	topic  backend.Topic
	live   bool          // its topic is watched
	at     *list.Element // in the queue; nil if it does not stand there
	number int           // among those that stand there
	// look is when it asks again if it is the first of this client's, though nothing happened (monotonic); 0
	// if it has not been refused.
	look int64

	grant     grant
	taken     bool // the store has given it a place, or the lock
	abandoned bool // the reply is found by another goroutine, which then leaves the queue
}

// first is the waiter of this client that came first; nil if there is none.
func (l *fairQueue) first() *fairTicket {
	if front := l.standing.Front(); front != nil {
		return front.Value.(*fairTicket)
	}
	return nil
}

// before is how many waiters of this client came before p, about: waiters that left are counted.
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

// fairCall is a call's question with a ticket, a pending command.
type fairCall struct {
	*question
	place *fairTicket
}

// waitInLine waits for a fair lock. Each call asks for itself, since the store has the order. If its lease ran
// out before the call heard of it, it goes to the end of the queue.
func (c *call) queueUpFair() (*lease.Handle, error) {
	e := c.engine
	if c.place = keepPlace; c.Wait > 0 {
		c.place = clock.CeilMilli(min(c.Wait, keepLongest))
	}
	e.begin() // Shutdown waits until it has left the queue
	defer e.end()
	for n := 0; ; n++ {
		f := &fairCall{question: &c.asks, place: e.names.fair.find(c.Name)}
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

// wait waits with the ticket. Late is not nil if the lock was granted too late. Without the lock it leaves the store's
// queue, also where an observer panics.
func (f *fairCall) wait() (h *lease.Hold, late, err error) {
	defer func() {
		if h == nil && !f.place.abandoned {
			f.abandon()
		}
		f.engine.names.fair.leave(f.Name, f.place)
	}()
	err = f.waitIn(f.place.topic, func() (a Answer, err error) {
		h, a, err = f.ask()
		if late = nil; err == nil && a.Got && h == nil {
			late, a.Failure = a.Failure, nil
		}
		return a, err
	})
	return h, late, err
}

// ask asks for the lock and a place, and settles what becomes of it.
func (f *fairCall) ask() (*lease.Hold, Answer, error) {
	c, p, e := f.question, f.place, f.engine
	c.grant = grant{owner: p.owner, sent: p.grant.sent, late: p.grant.late, until: p.grant.until}
	if err := c.enterLimit(); err != nil || c.grant.err != nil {
		return nil, Answer{Failure: c.grant.err}, err
	}
	returned := false
	defer c.grant.leaveUnless(&returned)
	err := e.carryOut(c.wait, f, false)
	if returned = true; err != nil {
		p.abandoned = true
		return nil, Answer{}, err
	}
	g := &c.grant
	lost := p.taken && g.reply.Joined // it may not have been told of that
	p.note(g)
	switch {
	case g.err != nil:
		return nil, Answer{Failure: g.err}, nil
	case !g.granted:
		e.names.fair.join(c.Name, p, lost)
		return nil, Answer{Left: g.reply.Remaining, Look: f.nextLook()}, nil
	case c.wait.Err() != nil:
		return nil, Answer{}, fail.Gone(c.wait)
	}
	h, err := c.settle(c.under)
	switch {
	case err == nil:
		return h, Answer{Got: true}, nil
	case err == fail.Closing:
		return nil, Answer{Failure: err}, nil
	}
	return nil, Answer{Got: true, Failure: err}, nil
}

func (f *fairCall) dispose() {
	f.place.note(&f.grant)
	f.abandon()
}

// note keeps what a request came to. Its outcome being unknown is not forgotten for a later one's being known: a
// refusal says only that none had got the lock by then.
func (p *fairTicket) note(g *grant) {
	p.grant = grant{sent: g.sent, late: g.late, until: g.until}
	p.taken = p.taken || g.err == nil
	switch {
	case g.err != nil || g.granted || g.late == 0:
	case g.asked.Mono >= g.until:
		p.grant = grant{} // none can get it any more
	default:
		p.grant.sent = g.asked
	}
}

// nextLook is when to ask again though the call was not told: the first in the queue, when the holder's lease is
// over; the others a little later, in case the first is dead. One of them is enough for each client; the others
// look now and then, so that the store does not take them for dead.
func (f *fairCall) nextLook() time.Duration {
	c, e, reply := f.call, f.engine, &f.grant.reply
	look := reply.AskAfter
	if look < 0 {
		look = lookAgain
	}
	e.lock()
	f.place.look = e.Now().Mono + int64(look)
	if l := e.names.fair.all[c.Name]; l != nil && reply.Remaining != 0 { // held: one of this client's looks, the first
		if n := l.before(f.place); n > 0 {
			look += time.Duration(n) * lookAgain
		} else {
			look = min(look, upTo(min(recheck, backend.Patience)).Truncate(time.Millisecond)) // as stores count
		}
	}
	e.unlock()
	if c.Wait == 0 || c.Wait > c.place {
		look = min(look, c.place/2)
	}
	return look
}

// abandon undoes, in the background, what the ticket's requests came to, or may yet.
func (f *fairCall) abandon() {
	p, e := f.place, f.engine
	late := p.grant.late
	switch {
	case late == 0 && !p.taken:
		return
	case late > 0 && p.taken:
		late++ // the place, or the lock, is found as well
	}
	e.lock()
	defer e.unlock()
	e.renewer.leaveFairQueue(debt{name: f.Name, owner: p.owner, place: f.call.place, late: late, until: p.grant.until})
}

// find returns a ticket that is listened for already, if there is one.
func (s *fairQueues) find(name string) *fairTicket {
	e := s.engine
	e.lock()
	defer e.unlock()
	if l := s.all[name]; l != nil {
		for i, p := range l.ahead {
			if p.live {
				l.ahead = slices.Delete(l.ahead, i, i+1)
				return p
			}
		}
	}
	return s.newPlace(name)
}

// join notes that p stands in the queue, and has it listened for, with some more. If the store had lost its place, it
// is the last now, and the one behind it looks after its own.
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
	// The plain lock's topic comes first: once p's own is watched, it is, too.
	topics := append([]backend.Topic{lockTopic(name)}, l.listen(p)...)
	e.unlock()
	for _, t := range topics {
		e.names.watches.sync(t)
	}
}

// listen chooses the topics that are to be watched for p, and ahead of need.
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

// leave notes that no call stands at p any more.
func (s *fairQueues) leave(name string, p *fairTicket) {
	e := s.engine
	e.lock()
	defer e.unlock()
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

// remove takes p out of the queue, if it stands there.
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

// succeed has the ticket that is first of this client's now look as the first does: it asked when others were before it
// that would, and the holder by then may be dead.
func (l *fairQueue) succeed() {
	p := l.first()
	if p == nil {
		return
	}
	q := l.engine.names.records[p.topic].queue()
	switch {
	case q == nil || p.look == 0:
	case q.Asking(): // it may have taken its time to look from its old place
		q.Notify()
	default:
		q.RetryBy(p.look)
	}
}

// Fire forgets a queue that no call has needed for a while.
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
		l.notify() // one that is not listened for yet asks when it is
	}
}

// notify has the first ask.
func (l *fairQueue) notify() {
	if p := l.first(); p != nil {
		l.engine.names.notify(p.topic)
	}
}

// barged notes that the plain lock was released, which its queue may not have been told of. A request for a free lock
// out of turn has the first in the queue told.
func (s *fairQueues) barged(t backend.Topic) {
	if l := s.all[t.Name]; l != nil && t.Kind == backend.KindLock {
		l.notify()
	}
}
