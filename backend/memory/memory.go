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
// suite: memory is the reference model for other backends. Unlike on Redis a name is one thing: no
// other data can have the place of a semaphore's permits in use or of a proclamation.
//
// Limits: processes share nothing, and nothing survives the process. Two replicas of a service with
// a Store each exclude their own goroutines only. Fencing tokens start from the wall clock's
// milliseconds, so tokens of a restarted process are larger than earlier tokens, as long as the clock
// has advanced and the lock was taken less than once a millisecond. There are no replicas:
// mortise.WithReplicas is refused.
package memory

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// Store is an in-process store; make a Store with [New]. Store implements [backend.Backend], for
// mortise.New. All clients opened on a Store share its locks. The methods may be called
// concurrently.
type Store struct {
	mu    sync.Mutex
	epoch time.Time          // from which package record counts time
	names map[string]*stored // of which something is kept
	known record.Known
	// spare are names for reuse, and step is the one that is under way.
	spare    []*stored
	step     record.Step
	expiries expiries
	// timer runs at the deadline of expiries[0], or earlier; nil if no record expires.
	timer    *time.Timer
	timerFor record.Time
	sessions map[record.Session]*client
	opened   record.Session // the last one
	watchers watchers
	tokens   tokens
	down     error
	lost     time.Time // the time of the last Flush; zero if none
}

// stored is a name that something is kept of.
type stored struct {
	record.Name
	name string
	// The name is to be looked at at deadline if it is in Store.expiries, at index; index is -1 if it is not in there.
	deadline record.Time
	index    int
}

// New makes an empty store.
func New() *Store {
	return &Store{
		epoch:    time.Now().Add(-time.Millisecond), // no time is 0, which means none
		names:    make(map[string]*stored),
		sessions: make(map[record.Session]*client),
		watchers: make(watchers),
	}
}

// made reports whether New has made s. The other methods of a Store that is nil or a zero value do nothing: no client
// can have it.
func (s *Store) made() bool { return s != nil && s.names != nil }

// Open implements [backend.Backend].
func (s *Store) Open(h backend.Handler) (backend.Store, error) {
	switch {
	case !s.made():
		return nil, errors.New("memory: this Store is nil or a zero value; make it with memory.New")
	case h == nil:
		return nil, errors.New("memory: nil Handler")
	}
	x := &client{store: s, handler: h, watched: make(map[backend.Topic]struct{})}
	x.Locks = record.Within(x, &s.known)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	x.id = s.opened
	s.sessions[x.id] = x
	return x, nil
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
	clear(s.names)
	s.known = record.Known{}
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
	r, st := s.begin(nil, name)
	r.Foreign = true
	s.end(r, st)
}

// vacate removes the data under a name, as another program would.
func (s *Store) vacate(name string) {
	if lock, is := strings.CutPrefix(name, saidKey); is {
		s.run(strings.TrimSuffix(lock, "}"), func(n *record.Name, _ *record.Step) { n.Said = record.Said{} })
	}
	r, st := s.begin(nil, name)
	r.Delete(st)
	s.end(r, st)
}

// saidKey begins the key of a proclamation on Redis; here it is a part of its lock's name.
const saidKey = "mortise:1:proclaim:{"
