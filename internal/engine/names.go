package engine

import (
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/localqueue"
	"github.com/mortise-go/mortise/internal/timerq"
)

// names is what a client knows, by name. Guarded by the engine's mutex.
type names struct {
	records map[backend.Topic]*name
	engine  *Engine
	watches watches
	fair    fairQueues
	permits map[string]*tenure              // of semaphores, by each of their ids
	entered map[string]map[*tenure]struct{} // tenures that entered under another, by name
	entries uint32                          // drawn, for the store's queues
	waiting int                             // names that calls wait for
	spare   []*waiters                      // used again: a call that waits for nothing else has them, too
}

func newNames(e *Engine) names {
	return names{
		engine:  e,
		records: make(map[backend.Topic]*name),
		watches: watches{engine: e, all: make(map[backend.Topic]*watch)},
		fair:    fairQueues{engine: e, all: make(map[string]*fairQueue)},
		permits: make(map[string]*tenure),
		entered: make(map[string]map[*tenure]struct{}),
	}
}

// name is what a client knows of one name: its own tenures, and its own waiters.
type name struct {
	topic backend.Topic
	lease.Record
	budget   localqueue.Budget
	*waiters // nil where nothing waits
}

// waiters are the calls that wait for one name. Their entry tells them from those that waited before.
type waiters struct {
	localqueue.Queue
	refused  bool   // the store has refused the first, so the client watches for releases
	answered bool   // the store has said that it is held
	enrols   bool   // the last question was to enrol
	claims   bool   // the last question was a writer's
	enrolled bool   // the store tells this client when it is its turn
	behind   bool   // a request, whose caller had left, put the entry there while another was asking
	foremost bool   // its entry is the first, so that a release that serves no entry makes it ask
	heard    bool   // of such a release
	entry    uint32 // what these waiters are called in the store's queue
	failing  int64  // since when the store fails (monotonic); zero if it does not
	deaf     error  // why releases cannot be heard of, if so: waiting makes no sense then
	hinted   int64  // when a change of the record last made the first ask
	hint     timerq.Timer
}

// maxSpare is how many are kept for those that come.
const maxSpare = 64

// waiter is a call that waits.
type waiter struct {
	localqueue.Ticket
	call   *call                 // if it can be handed a record
	handed *grant                // it has the record
	taken  *backend.CountRequest // the request that took its permits, where the first's question did: see Served
}

// give hands the waiter a record, whether it is the first or not, and has it look.
func (w *waiter) give(g *grant) {
	w.handed = g
	w.Hand()
}

// queue is the local queue, nil where nothing waits.
func (n *name) queue() *localqueue.Queue {
	if n == nil || n.waiters == nil {
		return nil
	}
	return &n.Queue
}

// refill gives a tenure that begins its budget, one hold where a client of another library waits.
func (n *name) refill(foreign bool, now int64) {
	if n.budget = (localqueue.Budget{}); !foreign {
		n.budget.Refill(n.queue(), now)
	}
}

// first is the waiter that asks the store; nil if nothing waits.
func (n *name) first() *waiter {
	if t := n.queue().First(); t != nil {
		return t.Waiter.(*waiter)
	}
	return nil
}

// holder is the tenure that holds the record; nil if none does.
func (n *name) holder() *tenure {
	if n == nil || n.Holder == nil {
		return nil
	}
	return ofTenure(n.Holder)
}

// of is what is known of a topic, made where nothing is.
func (s *names) of(t backend.Topic) *name {
	n := s.records[t]
	if n == nil {
		n = &name{topic: t}
		s.records[t] = n
	}
	return n
}

// expect makes room for a waiter.
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

// counts is 1 for a name, and 0 for a ticket of a fair lock.
func (n *name) counts() int {
	if n.topic.Kind == backend.KindFair {
		return 0
	}
	return 1
}

// tidy forgets what is not needed.
func (s *names) tidy(n *name) {
	if n.first() != nil {
		return
	}
	if n.waiters != nil { // what the next waiter knows of the answer is nothing
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

// notify notes that what t is about may be free.
func (s *names) notify(t backend.Topic) { s.records[t].queue().Notify() }

// claims reports whether a writer asks for a read-write lock, and may claim it.
func (s *names) claims(t backend.Topic) bool {
	n := s.records[t]
	return n.first() != nil && n.claims
}

// tenures are all live ones and those being released.
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

// firstPermit is the id of the first of a tenure's permits, which the tenure is counted by.
func firstPermit(t *tenure) string {
	first, _, _ := strings.Cut(t.Owner, ",")
	return first
}

// holds notes the permits of a tenure, and drops forgets them. Of other tenures drops finds nothing.
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

// join notes a tenure that entered under another, and part that it has gone.
func (s *names) join(t *tenure) {
	name := t.Key.Name
	if s.entered[name] == nil {
		s.entered[name] = make(map[*tenure]struct{})
	}
	s.entered[name][t] = struct{}{}
}

func (s *names) part(t *tenure) {
	if len(s.entered) == 0 {
		return
	}
	name := t.Key.Name
	delete(s.entered[name], t)
	if len(s.entered[name]) == 0 {
		delete(s.entered, name)
	}
}
