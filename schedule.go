package mortise

import (
	"container/heap"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

const (
	// renewBatch is how many leases one command renews.
	renewBatch = 256
	// senders is how many commands the schedule has on their way at once, to each node.
	senders = 4
	// fireBatch bounds what becomes due under one hold of the mutex, and so how late the first of
	// many contexts ends.
	fireBatch = 256
	// lookAtClocks is how often both clocks are read while a lease is held: timers stand still
	// while a machine sleeps.
	lookAtClocks = time.Second
	// wallJump is how far the wall clock must have gone ahead of the monotonic one for leases to be
	// looked at for it. Less is a clock that is slewed.
	wallJump = 10 * time.Millisecond
)

// timed is something that is due at a time. fire is called then, with the mutex; it
// puts itself back if it wants to be called again.
type timed struct {
	at   int64 // monotonic
	pos  int   // in the heap, from 1; 0 when it is not in it
	fire func(now instant, fx *effects)
	of   *owner // whose time it is, if an owner's: its tick is called instead of fire
}

// schedule is the one timer of a client: ends of leases, renewals, compensations.
// Its goroutine starts with the first entry and ends with the client.
type schedule struct {
	entries timedHeap
	armed   int64 // when the goroutine will look next
	started bool
	rouse   chan struct{}
	stopped chan struct{}
	ahead   int64 // of the wall clock over the monotonic one, when leases were last looked at for it

	lanes map[int]*lane // by node of the store; 0 where there is one only, or it is not known
}

// lane is what is to be sent to one node of the store. Each has senders of its own, so that a
// node that hangs holds up nothing for the others.
type lane struct {
	due     fifo[*owner] // to be renewed now
	jobs    fifo[func()] // compensations to be sent now
	sending int          // goroutines that send
}

// lane is that of a name's node.
func (c *Client) lane(name string) *lane {
	node := c.node(name)
	l := c.sched.lanes[node]
	if l == nil {
		l = new(lane)
		c.sched.lanes[node] = l
	}
	return l
}

func (s *schedule) init(k clock) {
	s.ahead = k.epoch.UnixNano()
	s.rouse = make(chan struct{}, 1)
	s.stopped = make(chan struct{})
	s.armed = never
	s.lanes = make(map[int]*lane)
}

// put enters t, or moves it. Guarded by Client.mu.
func (c *Client) put(t *timed, at int64) {
	s := &c.sched
	t.at = at
	if t.pos == 0 {
		heap.Push(&s.entries, t)
	} else {
		heap.Fix(&s.entries, t.pos-1)
	}
	if !s.started {
		s.started = true
		go c.runSchedule()
	}
	if at < s.armed {
		s.armed = at
		select {
		case s.rouse <- struct{}{}:
		default:
		}
	}
}

func (s *schedule) remove(t *timed) {
	if t.pos != 0 {
		heap.Remove(&s.entries, t.pos-1)
	}
}

func (c *Client) runSchedule() {
	s := &c.sched
	defer close(s.stopped)
	var timer *time.Timer
	for {
		var fx effects
		c.mu.Lock()
		s.armed = 0 // awake: nothing has to rouse it
		now := c.now()
		s.jumped(now)
		for n := 0; n < fireBatch && s.anyDue(now); n++ {
			t := s.entries[0]
			s.remove(t)
			if t.of != nil {
				t.of.tick(now, &fx)
			} else {
				t.fire(now, &fx)
			}
		}
		if s.anyDue(now) {
			c.mu.Unlock()
			fx.run()
			continue
		}
		c.gather(now)
		c.send()
		s.armed = never
		if len(s.entries) > 0 {
			s.armed = s.entries[0].at
		}
		sleep := time.Hour
		if s.armed != never {
			sleep = min(time.Duration(s.armed-now.mono), lookAtClocks)
		}
		c.mu.Unlock()
		fx.run()
		timer = after(timer, max(sleep, 0))
		select {
		case <-timer.C:
		case <-s.rouse:
		case <-c.base.Done():
			timer.Stop()
			return
		}
	}
}

// anyDue reports whether an entry is due.
func (s *schedule) anyDue(now instant) bool {
	return len(s.entries) > 0 && s.entries[0].at <= now.mono
}

// jumped moves what is due of owners where the wall clock has gone ahead: the machine has slept, and
// no timer knows of it. Leases end by the wall clock then, and are renewed as much earlier.
func (s *schedule) jumped(now instant) {
	ahead := now.wall - now.mono
	slept := ahead - s.ahead
	if slept < int64(wallJump) {
		s.ahead = min(s.ahead, ahead)
		return
	}
	s.ahead = ahead
	for _, t := range s.entries {
		if o := t.of; o != nil {
			if o.renewAt != never {
				o.renewAt -= slept
			}
			t.at = o.due()
		}
	}
	heap.Init(&s.entries)
}

// hasten has all that is no owner's due by a time at the latest: Shutdown waits for no more. The
// schedule notices within a second.
func (s *schedule) hasten(at int64) {
	for _, t := range s.entries {
		if t.of == nil {
			t.at = min(t.at, at)
		}
	}
	heap.Init(&s.entries)
}

// dueAt is when i is reached by either clock (monotonic), as far as the wall clock's lead is known.
func (s *schedule) dueAt(i instant) int64 { return min(i.mono, i.wall-s.ahead) }

// tick is an owner's time: a lease or a bound that ran out, or a renewal that is due.
func (o *owner) tick(now instant, fx *effects) {
	o.expire(now, fx)
	if o.state != ownerLive {
		return
	}
	c := o.client
	if !o.renewing && min(o.renewAt, o.checkAt) <= now.mono {
		o.renewing = true
		c.lane(o.queue.topic.Name).due.push(o)
	}
	if t := o.trouble; t != nil && t.repairAt != 0 && t.repairAt <= now.mono {
		t.repairAt = 0
		c.lane(o.queue.topic.Name).jobs.push(o.repair)
	}
	c.reschedule(o)
}

// reschedule enters o for whatever comes next.
func (c *Client) reschedule(o *owner) {
	if o.state != ownerLive {
		return
	}
	c.put(&o.timed, o.due())
}

// due is when something comes next for o.
func (o *owner) due() int64 {
	s := &o.client.sched
	at := s.dueAt(o.deadline)
	if !o.renewing {
		at = min(at, o.renewAt, o.checkAt)
	}
	for h := range o.all {
		if end, bounded := h.until(); bounded {
			at = min(at, s.dueAt(end))
		}
	}
	if t := o.trouble; t != nil && t.repairAt != 0 {
		at = min(at, t.repairAt)
	}
	return at
}

// gather fills batches with what is due a little later: leases that were acquired in a row are
// renewed in one command.
func (c *Client) gather(now instant) {
	s := &c.sched
	room := 0
	for _, l := range s.lanes {
		if n := l.due.len() % renewBatch; n != 0 {
			room += renewBatch - n
		}
	}
	soon := now.mono + int64(c.watchdog/48)
	for ; room > 0 && len(s.entries) > 0; room-- {
		o := s.entries[0].of
		if o == nil || o.renewing || min(o.renewAt, o.checkAt) > soon {
			return
		}
		o.renewing = true
		c.lane(o.queue.topic.Name).due.push(o)
		c.reschedule(o)
	}
}

// send hands batches and compensations to goroutines, few at a time for each node.
func (c *Client) send() {
	for node, l := range c.sched.lanes {
		c.sendOn(l)
		if node != 0 && l.sending == 0 {
			delete(c.sched.lanes, node) // its node may be gone
		}
	}
}

func (c *Client) sendOn(l *lane) {
	for l.sending < senders {
		var job func()
		switch {
		case l.due.len() > 0:
			batch := make([]*owner, min(l.due.len(), renewBatch))
			for i := range batch {
				batch[i] = l.due.pop()
			}
			job = func() { c.renew(batch) }
		case l.jobs.len() > 0:
			job = l.jobs.pop()
		default:
			return
		}
		l.sending++
		c.running++
		go func() {
			job()
			c.mu.Lock()
			l.sending--
			c.running--
			c.sendOn(l)
			c.checkIdle()
			c.mu.Unlock()
		}()
	}
}

// renew asks for more time for a batch of owners. Its commands' ctx ends with the
// client; what it finds out about an owner that is over does not matter.
func (c *Client) renew(batch []*owner) {
	in := make([]backend.RenewRequest, 0, len(batch))
	out := make([]backend.RenewResult, len(batch))
	asked := batch[:0]
	now := c.now()
	c.mu.Lock()
	slices.SortStableFunc(batch, func(a, b *owner) int { return int(a.record()) - int(b.record()) }) // a command is for one kind
	for _, o := range batch {
		if o.state != ownerLive {
			o.renewing = false
			continue
		}
		o.verify = false
		lease := o.renewal(now)
		if soon := now.mono + int64(c.watchdog/48); o.checkAt <= soon && o.renewAt > soon {
			lease = 0 // it only asks
		}
		o.checkAt = never
		in = append(in, backend.RenewRequest{Kind: o.record(), Name: o.queue.topic.Name, Owner: o.id, Lease: lease})
		asked = append(asked, o)
	}
	c.mu.Unlock()
	if len(in) == 0 {
		return
	}
	sent := c.now()
	c.session.Renew(c.base, in, out[:len(in)])

	var fx effects
	c.mu.Lock()
	now = c.now()
	for i, o := range asked {
		o.renewing = false
		if o.state == ownerLive {
			c.renewed(o, sent, now, &in[i], out[i], &fx)
		}
	}
	c.mu.Unlock()
	fx.run()
}

// renewed settles what became of one renewal.
func (c *Client) renewed(o *owner, sent, now instant, in *backend.RenewRequest, res backend.RenewResult, fx *effects) {
	name, id, lease := o.queue.topic.Name, o.id, in.Lease
	switch {
	case res.Err != nil:
		t := o.troubled()
		t.failures++
		t.last = res.Err
		o.renewAt = now.mono + int64(min(c.watchdog/30, 50*time.Millisecond<<min(t.failures, 10)))
		left := o.deadline.until(now)
		if c.log != nil {
			fx.then(func() {
				c.teller.sum(sumRenewal, "name", shorten(name), "owner", id, "left", left, "err", res.Err)
			})
		}
		if f := c.observer.RenewalFailed; f != nil {
			fx.tell(c.teller, func() { f(RenewalFailedEvent{Subject: o.subject(), Remaining: left, Err: res.Err}) })
		}
	case !res.Held:
		o.lose(now, fx, noRecord)
		return
	case in.Kind != o.record(): // lent meanwhile: it may have come after who entered, and that one's lease is all it prolonged
		if o.expire(now, fx); o.state != ownerLive {
			return
		}
		o.renewAt = now.mono
	default:
		// A confirmation that comes too late revives nothing.
		if o.expire(now, fx); o.state != ownerLive {
			return
		}
		if t := o.trouble; t != nil {
			t.failures, t.last = 0, nil
		}
		extends := lease > 0 && !o.upholds()
		if extends {
			o.deadline = later(o.deadline, deadlineOf(sent, lease))
		}
		switch {
		case o.renewal(now) == 0:
			o.renewAt = never
		case lease > 0 || o.renewAt == never:
			o.renewAt = sent.mono + int64(c.watchdog/3)
		}
		if o.verify {
			o.ask()
		}
		if f := c.observer.Renewed; f != nil && extends {
			left := o.deadline.until(now)
			took := time.Duration(now.mono - sent.mono)
			fx.tell(c.teller, func() { f(RenewedEvent{Subject: o.subject(), Took: took, Remaining: left}) })
		}
	}
	c.reschedule(o)
}

// timedHeap is a heap by time, for container/heap.
type timedHeap []*timed

func (h timedHeap) Len() int           { return len(h) }
func (h timedHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timedHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}
func (h *timedHeap) Push(x any) {
	t := x.(*timed)
	*h = append(*h, t)
	t.pos = len(*h)
}
func (h *timedHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.pos = 0
	return t
}
