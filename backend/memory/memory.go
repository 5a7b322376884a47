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
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// Store is an in-process store; make a Store with [New]. Store implements [backend.Backend], for
// mortise.New. All clients opened on a Store share its locks. The methods may be called
// concurrently.
type Store struct {
	mu      sync.Mutex
	epoch   time.Time // from which package record counts time
	records map[string]*stored
	// The states of package record, by name. None is as the zero value.
	locks   map[string]*record.Lock
	sides   map[string]*record.Sides
	permits map[string]*record.Permits
	// spare are locks for reuse, and steps a step.
	spare    []*record.Lock
	steps    *record.Step
	expiries expiries
	// timer runs at the deadline of expiries[0], or earlier; nil if no record expires.
	timer    *time.Timer
	timerFor time.Time
	sessions map[record.Session]*client
	opened   record.Session // the last one
	watchers watchers
	tokens   tokens
	down     error
	lost     time.Time // the time of the last Flush; zero if none
}

// stored is the data under one name.
type stored struct {
	name string
	// state is a *record.Lock or a *record.Sides that is held, a *record.Permits with a count, or *out. Nil: the data
	// is foreign, or one of those below.
	state any
	// took is the result of a remembered request: 1 for success, 0 for a refusal, or the number that DrainCount took.
	took int64
	// tick is the last tick of a schedule. said is the proclamation of a lock's owner.
	tick *record.Tick
	said *record.Said
	// The data expires at deadline if it is in Store.expiries, at index; index is -1 if it is not in there.
	deadline time.Time
	index    int
}

// New makes an empty store.
func New() *Store {
	return &Store{
		epoch:    time.Now(),
		records:  make(map[string]*stored),
		locks:    make(map[string]*record.Lock),
		sides:    make(map[string]*record.Sides),
		permits:  make(map[string]*record.Permits),
		sessions: make(map[record.Session]*client),
		watchers: make(watchers),
	}
}

// made reports whether New has made s. The other methods of a Store that is nil or a zero value do nothing: no client
// can have it.
func (s *Store) made() bool { return s != nil && s.records != nil }

// Open implements [backend.Backend].
func (s *Store) Open(h backend.Handler) (backend.Store, error) {
	switch {
	case !s.made():
		return nil, errors.New("memory: this Store is nil or a zero value; make it with memory.New")
	case h == nil:
		return nil, errors.New("memory: nil Handler")
	}
	x := &client{store: s, handler: h, watched: make(map[backend.Topic]struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	x.id = s.opened
	s.sessions[x.id] = x
	return &session{x}, nil
}

// SetDown makes every operation fail from now on, as on an unreachable store: with a temporary
// [*backend.Fault] that wraps err and has not taken effect. While the store is down its sessions
// hear nothing, and leases expire all the same. SetDown(nil) makes the store available again;
// sessions are then told of a possible change of any record, and each watch is confirmed anew.
func (s *Store) SetDown(err error) {
	if !s.made() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.down
	s.down = err
	if was == nil || err != nil {
		return
	}
	for _, x := range s.sessions {
		x.tell(event{what: changedAll})
		for t := range x.watched {
			x.tell(event{watching, t})
		}
	}
	s.expireNow()
}

// Delete removes the data stored under name, as an operator's DEL would: no release is announced.
// The holder and the waiters are told of the change, except waiters for a fair lock, which ask within
// 5 s, and services that wait to enter (mortise.Client.WithDelegations), which ask when the lease of
// the service before them would have ended. The name's fencing tokens continue to rise.
func (s *Store) Delete(name string) {
	if !s.made() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacate(name)
}

// Flush removes everything, as FLUSHALL would, and tells every session of a possible change of any
// record. Fencing tokens continue to rise.
func (s *Store) Flush() {
	if !s.made() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = time.Now()
	clear(s.records)
	clear(s.locks)
	clear(s.sides)
	clear(s.permits)
	s.expiries = nil
	s.arm()
	s.tokens.fold()
	for _, x := range s.sessions {
		x.tell(event{what: changedAll})
	}
}

// Occupy puts data other than a lock under name, in place of any earlier data. The data stay until
// [Store.Delete] or [Store.Flush]; operations on the name answer [backend.ErrWrongKind].
func (s *Store) Occupy(name string) {
	if !s.made() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacate(name)
	s.records[name] = &stored{name: name, index: -1}
}

// vacate removes the data under a name, as another program would.
func (s *Store) vacate(name string) {
	r := s.find(name)
	if r == nil {
		return
	}
	switch l := r.state.(type) {
	case *record.Lock:
		step(s, nil, s.locks, name, (*record.Lock).Delete)
		return
	case *record.Sides:
		step(s, nil, s.sides, name, (*record.Sides).Delete)
		return
	case *record.Permits:
		step(s, nil, s.permits, name, func(p *record.Permits, _ *record.Step) { p.Counts, p.N = false, 0 })
	case *out:
		l.Out = nil
		s.remove(r)
	default:
		s.remove(r)
	}
	s.changed(name)
}

// find returns the live record of name, or nil. A record past its deadline expires here if the timer has not run yet.
func (s *Store) find(name string) *stored {
	r := s.records[name]
	if r == nil || r.index < 0 || time.Now().Before(r.deadline) {
		return r
	}
	s.pass(r)
	return s.records[name]
}

// anyLock stands for the kinds of locks, which have a state of their own each.
const anyLock backend.Kind = 255

// lookup returns an error if name has other data than a lock of a kind: data that is no lock, a read-write lock where k
// is no side of one, or another lock where k is a side.
func (s *Store) lookup(k backend.Kind, name string) error {
	r := s.find(name)
	if r == nil {
		return nil
	}
	side := k == backend.KindRead || k == backend.KindWrite
	switch r.state.(type) {
	case *record.Lock:
		if !side {
			return nil
		}
	case *record.Sides:
		if side || k == anyLock {
			return nil
		}
	}
	return wrongKind(r)
}

// changed tells the sessions that watch counts of a name that its data is gone.
func (s *Store) changed(name string) {
	for _, k := range []backend.Kind{backend.KindCountDownLatch, backend.KindCountingSemaphore, backend.KindSemaphore} {
		s.watchers.tell(changed, backend.Topic{Kind: k, Name: name})
	}
}

func lockTopic(name string) backend.Topic {
	return backend.Topic{Kind: backend.KindLock, Name: name}
}

// wrongKind returns the error of a call for a name whose record, r, is of another kind.
func wrongKind(r *stored) error {
	what, remedy := "foreign data under this name", "choose another name, or delete the data"
	switch r.state.(type) {
	case *record.Sides:
		what, remedy = "a read-write lock", "choose another name, or use Client.RW"
	case *record.Lock:
		what, remedy = "a lock that is no read-write lock", "choose another name, or use Lock, Inspect and ForceUnlock"
	}
	return &backend.Fault{Err: fmt.Errorf("memory: %w: %s", backend.ErrWrongKind, what), Remedy: remedy}
}
