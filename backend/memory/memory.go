// Package memory is a store in the memory of the process: the whole of mortise without a server.
//
//	locks, err := mortise.New(memory.New())
//
// The package has two uses. As the embedded default, the store serves programs of a single process,
// with a move to Redis by a change of one line. In tests the store stands in for Redis: clients
// opened on the same [Store] share locks just as processes share locks on a server, and a test can
// make the store unavailable ([Store.SetDown]), delete a record under its holder ([Store.Delete]),
// empty the store ([Store.Flush]) or put other data under a name ([Store.Occupy]). The store keeps
// time with package time alone and leaves no goroutine behind, so the store works inside a
// testing/synctest bubble; make the Store within the bubble.
//
// The store answers every request as the scripts on Redis do, and passes the same conformance
// suite: memory is the reference model for other backends.
//
// Limits: processes share nothing, and nothing survives the process. Two replicas of a service with
// a Store each exclude their own goroutines only. Fencing tokens start from the wall clock's
// milliseconds, so tokens of a restarted process are larger than earlier tokens, as long as the clock
// has advanced and the lock was taken less than once a millisecond. There are no replicas:
// mortise.WithReplicas is refused.
package memory

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Store is an in-process store; make a Store with [New]. Store implements [backend.Backend], for
// mortise.New. All clients opened on a Store share its locks. The methods may be called
// concurrently.
type Store struct {
	mu      sync.Mutex
	records map[string]*record
	places  map[string][]place // the queues of fair locks
	queues  queues             // the queues of plain locks
	// enrolments are the queues of semaphores and read-write locks.
	enrolments enrolments
	expiries   expiries
	// timer runs at the deadline of expiries[0], or earlier; nil if no record expires.
	timer    *time.Timer
	timerFor time.Time
	sessions map[*client]struct{}
	watchers watchers
	tokens   tokens
	claims   claims
	down     error
	lost     time.Time // the time of the last Flush; zero if none
}

// record is the data stored under one name.
type record struct {
	name string
	// foreign marks data other than a lock. Foreign data has no owner, and expires only if the record is in
	// Store.expiries.
	foreign bool
	// count is the count of a latch or a semaphore. out is the permits in use of a semaphore, by id. took is the
	// result of a remembered request: 1 for success, 0 for a refusal, or the number that DrainCount took. A record
	// with one of the three is foreign.
	count *int64
	out   map[string]*permit
	took  int64
	// tick is the last tick of a schedule. said is the proclamation of a lock's owner. A record with one of the two is
	// foreign.
	tick *tick
	said *said
	// sides is set for a read-write lock; owner and holder are then empty.
	sides    *sides
	owner    string
	holds    int
	deadline time.Time
	// reserved is the entry of the lock's queue, or fairWaiters, that the lock is reserved for; owner is then empty.
	reserved entry
	// parts has the owners, oldest first, if there are several. owner, holds and holder then repeat the first part,
	// and deadline is the latest deadline of all parts.
	parts []part
	// holder is the session that wrote the record last. It is told if the record ends by other means than its own
	// release.
	holder *client
	// index is the record's index in Store.expiries; -1 if the record is not in there.
	index int
}

// New makes an empty store.
func New() *Store {
	s := &Store{
		records:  make(map[string]*record),
		places:   make(map[string][]place),
		sessions: make(map[*client]struct{}),
		watchers: make(watchers),
		claims:   make(claims),
	}
	s.queues = queues{s, make(map[string][]waiting), make(map[string]entry), make(map[string]int)}
	s.enrolments = enrolments{s, make(map[backend.Topic][]*enrolled)}
	return s
}

// Open implements [backend.Backend].
func (s *Store) Open(h backend.Handler) (backend.Store, error) {
	switch {
	case s == nil || s.records == nil:
		return nil, errors.New("memory: this Store was not made by memory.New")
	case h == nil:
		return nil, errors.New("memory: nil Handler")
	}
	x := &client{store: s, handler: h, watched: make(map[backend.Topic]struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[x] = struct{}{}
	return &session{x}, nil
}

// SetDown makes every operation fail from now on, as on an unreachable store: with a temporary
// [*backend.Fault] that wraps err and has not taken effect. While the store is down its sessions
// hear nothing, and leases expire all the same. SetDown(nil) makes the store available again;
// sessions are then told of a possible change of any record, and each watch is confirmed anew.
func (s *Store) SetDown(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.down
	s.down = err
	if was == nil || err != nil {
		return
	}
	for x := range s.sessions {
		x.tell(event{what: changedAll})
		for t := range x.watched {
			x.tell(event{watching, t})
		}
	}
}

// Delete removes the data stored under name, as an operator's DEL would: no release is announced.
// The holder and the waiters are told of the change, except waiters for a fair lock, which ask within
// 5 s, and services that wait to enter (mortise.Client.WithDelegations), which ask when the lease of
// the service before them would have ended. The name's fencing tokens continue to rise.
func (s *Store) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacate(name)
}

// Flush removes everything, as FLUSHALL would, and tells every session of a possible change of any
// record. Fencing tokens continue to rise.
func (s *Store) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = time.Now()
	clear(s.records)
	clear(s.places)
	clear(s.queues.lines)
	clear(s.queues.extra)
	clear(s.queues.turns)
	clear(s.enrolments.lines)
	clear(s.claims)
	s.expiries = nil
	s.arm()
	s.tokens.fold()
	for x := range s.sessions {
		x.tell(event{what: changedAll})
	}
}

// Occupy puts data other than a lock under name, in place of any earlier data. The data stay until
// [Store.Delete] or [Store.Flush]; operations on the name answer [backend.ErrWrongKind].
func (s *Store) Occupy(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacate(name)
	s.records[name] = &record{name: name, foreign: true, index: -1}
}

func (s *Store) vacate(name string) {
	if r := s.find(name); r != nil {
		s.remove(r)
		s.changed(r)
	}
}

// find returns the live record of name, or nil. A record past its deadline expires here if the timer has not run yet.
func (s *Store) find(name string) *record {
	r := s.records[name]
	if r == nil || r.index < 0 || time.Now().Before(r.deadline) {
		return r
	}
	s.ended(r)
	return s.records[name]
}

// ended removes an expired record, tells the sessions concerned, and serves the queue of the plain lock.
func (s *Store) ended(r *record) {
	s.remove(r)
	s.changed(r)
	s.queues.ended(r)
}

// lookup returns the live record of a lock of kind k, or nil. It returns an error if name has data of another kind:
// foreign data, a read-write lock where k is no side of one, or another lock where k is a side.
func (s *Store) lookup(k backend.Kind, name string) (*record, error) {
	r := s.find(name)
	if r != nil && (r.foreign || isSide(k) != (r.sides != nil)) {
		return nil, wrongKind(r)
	}
	return r, nil
}

// held returns the record of name if owner holds it as a lock, else nil. It returns an error for foreign data. An
// owner of a side of a read-write lock is not found.
func (s *Store) held(name, owner string) (*record, error) {
	r := s.find(name)
	switch {
	case r == nil:
		return nil, nil
	case r.foreign:
		return nil, wrongKind(r)
	case !r.of(owner) || r.sides != nil:
		return nil, nil
	}
	return r, nil
}

// grant stores a new record for the owner of q.
func (s *Store) grant(q backend.AcquireRequest, x *client) {
	s.put(&record{name: q.Name, owner: q.Owner, holds: 1, holder: x}, q.Lease)
}

// put stores a new record that expires after lease.
func (s *Store) put(r *record, lease time.Duration) {
	r.deadline = time.Now().Add(lease)
	s.records[r.name] = r
	heap.Push(&s.expiries, r)
	s.arm()
}

// extend sets the remaining time of r to max(remaining, lease).
func (s *Store) extend(r *record, lease time.Duration) {
	if d := time.Now().Add(lease); d.After(r.deadline) {
		r.deadline = d
		heap.Fix(&s.expiries, r.index)
		s.arm()
	}
}

func (s *Store) remove(r *record) {
	delete(s.records, r.name)
	delete(s.queues.extra, r.name)
	if r.index >= 0 {
		heap.Remove(&s.expiries, r.index)
		s.arm()
	}
}

// arm sets the timer for the next expiry. A timer that is set too early stays: renewals and releases, which put the
// next expiry off, then set no timer.
func (s *Store) arm() {
	switch {
	case len(s.expiries) == 0:
		if s.timer != nil {
			s.timer.Stop()
			s.timer = nil
		}
		return
	case s.timer != nil && !s.timerFor.After(s.expiries[0].deadline):
		return
	case s.timer != nil:
		s.timer.Stop()
	}
	s.timerFor = s.expiries[0].deadline
	s.timer = time.AfterFunc(time.Until(s.timerFor), s.expire)
}

// expire removes the expired records. The timer calls expire, perhaps late, or once too often after arm has replaced
// the timer. Neither matters: expire compares the deadlines with the clock.
func (s *Store) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	now := time.Now()
	var queued []*record
	for len(s.expiries) > 0 && !now.Before(s.expiries[0].deadline) {
		r := heap.Pop(&s.expiries).(*record)
		delete(s.records, r.name)
		delete(s.queues.extra, r.name)
		if s.changed(r); r.reserved == fairWaiters || s.queues.lines[r.name] != nil {
			queued = append(queued, r)
			continue
		}
		delete(s.queues.turns, r.name)
	}
	s.arm()
	for _, r := range queued {
		s.queues.ended(r)
	}
}

// released serves the queue of a released lock. If no entry is served, it announces the release to all watchers.
func (s *Store) released(r *record) {
	switch {
	case r.sides != nil:
		s.enrolments.announce(r.topic(), s.enrolments.tellSides(r.name, s.records[r.name] != nil))
	case !s.queues.freed(r.name):
		s.watchers.tell(released, r.topic())
	}
}

// changed tells the sessions that watch r, and the sessions of its holders, that r is gone.
func (s *Store) changed(r *record) {
	switch {
	case r.foreign:
		for _, k := range []backend.Kind{backend.KindCountDownLatch, backend.KindCountingSemaphore, backend.KindSemaphore} {
			s.watchers.tell(changed, backend.Topic{Kind: k, Name: r.name})
		}
	default:
		s.watchers.tell(changed, r.topic())
		r.tellHolders(s.watchers[r.topic()])
	}
}

// tellHolders tells the sessions of r's holders that r is gone, except the sessions in told.
func (r *record) tellHolders(told map[*client]struct{}) {
	holders := map[*client]struct{}{r.holder: {}}
	for _, p := range r.parts {
		holders[p.holder] = struct{}{}
	}
	if r.sides != nil {
		holders[r.sides.by] = struct{}{}
		for _, h := range r.sides.readers {
			holders[h.by] = struct{}{}
		}
	}
	for x := range holders {
		if _, twice := told[x]; !twice && x != nil {
			x.tell(event{changed, r.topic()})
		}
	}
}

// topic returns the topic of a lock's record.
func (r *record) topic() backend.Topic {
	if r.sides != nil {
		return rwTopic(r.name)
	}
	return lockTopic(r.name)
}

func lockTopic(name string) backend.Topic {
	return backend.Topic{Kind: backend.KindLock, Name: name}
}

// remaining returns the time until deadline, rounded up to whole milliseconds, at least one.
func remaining(deadline time.Time) time.Duration {
	d := time.Until(deadline) + time.Millisecond - 1
	return max(d.Truncate(time.Millisecond), time.Millisecond)
}

// wrongKind returns the error of a call for a name whose record, r, is of another kind.
func wrongKind(r *record) error {
	what, remedy := "foreign data under this name", "choose another name, or delete the data"
	switch {
	case r.sides != nil:
		what, remedy = "a read-write lock", "choose another name, or use Client.RW"
	case !r.foreign:
		what, remedy = "a lock that is no read-write lock", "choose another name, or use Lock, Inspect and ForceUnlock"
	}
	return &backend.Fault{Err: fmt.Errorf("memory: %w: %s", backend.ErrWrongKind, what), Remedy: remedy}
}

// tokens draws fencing tokens: the last token of the name plus one, or the wall clock's milliseconds for a name without
// a last token.
type tokens struct {
	last map[string]int64
	// floor is the largest token of all forgotten names.
	floor int64
}

// mostTokens bounds the number of names in tokens.last. At the bound, next forgets all names.
const mostTokens = 1 << 14

func (k *tokens) next(name string) int64 {
	n, ok := k.last[name]
	if ok {
		n++
	} else {
		if len(k.last) >= mostTokens {
			k.fold()
		}
		n = max(time.Now().UnixMilli(), k.floor+1)
	}
	if k.last == nil {
		k.last = make(map[string]int64)
	}
	k.last[name] = n
	return n
}

// draw returns the next token of name if one is asked for, else zero.
func (k *tokens) draw(asked bool, name string) int64 {
	if !asked {
		return 0
	}
	return k.next(name)
}

// drawn returns the last token of name, or a number no smaller if the name was forgotten.
func (k *tokens) drawn(name string) int64 { return max(k.last[name], k.floor) }

// fold forgets all names. It keeps the largest token, so later tokens still rise.
func (k *tokens) fold() {
	for n := range maps.Values(k.last) {
		k.floor = max(k.floor, n)
	}
	clear(k.last)
}

// expiries is a heap of records; the next one to expire is the first.
type expiries []*record

func (e expiries) Len() int           { return len(e) }
func (e expiries) Less(i, j int) bool { return e[i].deadline.Before(e[j].deadline) }

func (e expiries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (e *expiries) Push(x any) {
	r := x.(*record)
	r.index = len(*e)
	*e = append(*e, r)
}

func (e *expiries) Pop() any {
	last := len(*e) - 1
	r := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	r.index = -1
	return r
}
