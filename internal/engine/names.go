package engine

import (
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/localqueue"
	"github.com/mortise-go/mortise/internal/timerq"
)

// names is the state of a client by name: tenures, waiters, and watches. Guarded by the engine's mutex.
type names struct {
	records map[backend.Topic]*name
	engine  *Engine
	watches watches
	fair    fairQueues
	permits map[string]*tenure              // tenures of semaphores, by the id of each of their permits
	callees map[string]map[*tenure]struct{} // tenures that entered under another tenure by delegation, by name
	entries uint32                          // the number of entries drawn for the store's queues
	waiting int                             // the number of names with waiters, for recheckBy
	spare   []*waiters                      // unused values for reuse: a call that is alone in its queue needs them, too
}

func newNames(e *Engine) names {
	return names{
		engine:  e,
		records: make(map[backend.Topic]*name),
		watches: watches{engine: e, all: make(map[backend.Topic]*watch)},
		fair:    fairQueues{engine: e, all: make(map[string]*fairQueue), calls: make(map[string]int)},
		permits: make(map[string]*tenure),
		callees: make(map[string]map[*tenure]struct{}),
	}
}

// name is the state of one topic: the tenures and waiters of this client.
type name struct {
	topic backend.Topic
	lease.Record
	budget   localqueue.Budget
	*waiters // nil if no call waits
}

// waiters are the calls that wait for one name, from the first that came until the last has left. Each value has an
// entry of its own in the store's queue, so messages for earlier waiters are recognized.
type waiters struct {
	localqueue.Queue
	answered     bool     // the store has refused a waiter: the lock was held
	listens      bool     // a waiter that does not poll has come: it needs messages once the store has refused a waiter
	enrols       bool     // the last request was to enrol
	claims       bool     // the last request was a writer's, which may have made a claim
	enrolled     bool     // the entry is in the store's queue: the session reports when to ask
	untold       int64    // until when the store does not tell that the entry is the first (monotonic)
	before       int64    // when the owner's first lease before the entry ends, by the store's message (monotonic)
	enrolledLate bool     // a request whose caller had left put the entry into the queue, while another waiter asked
	firstInStore bool     // the entry is the first: a release that serves no entry makes the first waiter ask
	heard        bool     // such a release was reported: backend.EnrolRequest.Heard
	entry        uint32   // the number of the entry in the store's queue
	place        place    // what the entry asks for, where a release grants
	failing      int64    // when the store's failures began (monotonic); 0: the last request was answered
	lacks        *lacking // the last attempt that had too few replicas; nil if there was none
	watchErr     error    // why the session cannot watch the topic; nil if it can. Waiting then fails
	hinted       int64    // when a change of the record last made, or will make, the first waiter ask (monotonic)
	hint         timerq.Timer
}

// maxSpare bounds names.spare.
const maxSpare = 64

// waiter is a call that waits in a local queue.
type waiter struct {
	localqueue.Ticket
	call         *call    // set if the call can take a handoff
	handoffGrant *grant   // the grant of a handoff that the call has not taken yet
	count        *Waiting // set if the call waits for a count
}

// has reports whether the waiter was handed a grant of an owner, also after it has taken the grant.
func (w *waiter) has(owner string) bool {
	g := w.handoffGrant
	if g == nil && w.call != nil {
		g = w.call.attempt.handoffGrant
	}
	return g != nil && g.owner == owner
}

// give hands the grant of a handoff to the waiter, and wakes it, whether the waiter is the first or not. Shutdown waits
// until the waiter takes the grant.
func (w *waiter) give(g *grant) {
	w.handoffGrant = g
	w.call.engine.calls.running++
	w.Hand()
}

// queue returns the local queue; nil if no call waits.
func (n *name) queue() *localqueue.Queue {
	if n == nil || n.waiters == nil {
		return nil
	}
	return &n.Queue
}

// refill gives a new tenure its handoff budget; none if a foreign client waits.
func (n *name) refill(foreign bool, now int64) {
	if n.budget = (localqueue.Budget{}); !foreign {
		n.budget.Refill(n.queue(), now)
	}
}

// first returns the waiter that asks the store; nil if no call waits.
func (n *name) first() *waiter {
	if t := n.queue().First(); t != nil {
		return t.Waiter.(*waiter)
	}
	return nil
}

// holder returns the exclusive tenure; nil if there is none.
func (n *name) holder() *tenure {
	if n == nil || n.Holder == nil {
		return nil
	}
	return ofTenure(n.Holder)
}

// of returns the state of a topic. It makes one if there is none.
func (s *names) of(t backend.Topic) *name {
	n := s.records[t]
	if n == nil {
		n = &name{topic: t}
		s.records[t] = n
	}
	return n
}

// expect gives n its waiters, with a new entry, if it has none.
func (s *names) expect(n *name) {
	if n.waiters == nil {
		s.entries++
		s.waiting += n.counts()
		if last := len(s.spare) - 1; last >= 0 {
			n.waiters, s.spare = s.spare[last], s.spare[:last]
		} else {
			n.waiters = new(waiters)
		}
		*n.waiters = waiters{Queue: *localqueue.New(n.Holder != nil), entry: s.entries}
	}
}

// counts returns what n adds to names.waiting: 1, or 0 for a ticket of a fair lock.
func (n *name) counts() int {
	if n.topic.Kind == backend.KindFair {
		return 0
	}
	return 1
}

// tidy drops the waiters of n if no call waits, and n itself if it has no tenure either.
func (s *names) tidy(n *name) {
	if n.first() != nil {
		return
	}
	if n.waiters != nil { // the answers that these waiters got mean nothing to later waiters
		s.withdrawEntry(n)
		s.engine.renewer.timers.Remove(&n.hint)
		if len(s.spare) < maxSpare {
			s.spare = append(s.spare, n.waiters)
		}
		n.waiters = nil
		s.waiting -= n.counts()
	}
	if !n.InUse() && s.records[n.topic] == n {
		delete(s.records, n.topic)
	}
}

// notify notes that the lock of t may be free, and wakes the first waiter.
func (s *names) notify(t backend.Topic) { s.records[t].queue().Notify() }

// claims reports whether a writer of this client asks for a read-write lock, and so may have made a claim.
func (s *names) claims(t backend.Topic) bool {
	n := s.records[t]
	return n.first() != nil && n.claims
}

// tenures returns all tenures that are live or being released.
func (s *names) tenures() (all []*tenure) {
	for id, t := range s.permits {
		if id == firstPermit(t) {
			all = append(all, t)
		}
	}
	for _, n := range s.records {
		for t := range n.Tenures() {
			all = append(all, ofTenure(t))
		}
	}
	return all
}

// firstPermit returns the id of the first of a tenure's permits.
func firstPermit(t *tenure) string { return firstOf(t.Owner) }

// firstOf returns the id of the first of an owner's permits.
func firstOf(owner string) string {
	first, _, _ := strings.Cut(owner, ",")
	return first
}

// holds adds a semaphore's tenure to s.permits. drops removes it; for other kinds drops does nothing.
func (s *names) holds(t *tenure) {
	for id := range backend.PermitIDs(t.Owner) {
		s.permits[id] = t
	}
}

func (s *names) drops(t *tenure) {
	if t.family == backend.KindSemaphore {
		for id := range backend.PermitIDs(t.Owner) {
			delete(s.permits, id)
		}
	}
}

// addCallee adds a tenure that entered under another to s.callees, and removeCallee removes it.
func (s *names) addCallee(t *tenure) {
	name := t.Key.Name
	if s.callees[name] == nil {
		s.callees[name] = make(map[*tenure]struct{})
	}
	s.callees[name][t] = struct{}{}
}

func (s *names) removeCallee(t *tenure) {
	if len(s.callees) == 0 {
		return
	}
	name := t.Key.Name
	delete(s.callees[name], t)
	if len(s.callees[name]) == 0 {
		delete(s.callees, name)
	}
}
