package console

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/mortise-go/mortise"
)

// lock is a lock as the page's script gets it. Times are in milliseconds, at the time of the state.
type lock struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Held    bool     `json:"held"`
	Owner   string   `json:"owner"`
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	Age     int64    `json:"age"`
	Known   bool     `json:"known"` // whether the store knows the age; if not, it is that of what the console saw
	Left    int64    `json:"left"`  // negative: the lease has no end
	Lease   int64    `json:"lease"` // the longest rest of the lease that the console has seen
	Holds   int      `json:"holds"`
	Readers int      `json:"readers"`
	Token   int64    `json:"token"`
	Waiters int      `json:"waiters"`
	Queue   []waiter `json:"queue,omitempty"`

	since, end time.Time
}

// waiter is an entry of a lock's queue.
type waiter struct {
	Name string `json:"name"`
	Age  int64  `json:"age"` // negative: unknown
}

// state is what a viewer gets.
type state struct {
	Locks []*lock `json:"locks"`
	Total int     `json:"total"` // the number of locks in the store; those that are left out are counted perhaps twice
	Error string  `json:"error,omitempty"`
	// Reading: the locks are those that the first look has found so far.
	Reading bool `json:"reading,omitempty"`
}

// jitter is by how much the end of a lease may move from look to look without being renewed.
const jitter = 300 * time.Millisecond

// same reports whether a viewer can tell a from b by more than the time that went by.
func same(a, b *lock) bool {
	near := func(a, b time.Time) bool { return a.Sub(b).Abs() < jitter }
	return a.Name == b.Name && a.Kind == b.Kind && a.Held == b.Held && a.Owner == b.Owner && a.Known == b.Known &&
		a.Holds == b.Holds && a.Readers == b.Readers && a.Token == b.Token && a.Waiters == b.Waiters &&
		near(a.since, b.since) && (a.Left < 0) == (b.Left < 0) && (!a.Held || a.Left < 0 || near(a.end, b.end)) &&
		slices.EqualFunc(a.Queue, b.Queue, func(a, b waiter) bool { return a.Name == b.Name })
}

// lockOf is what a look at the time now shows; before is the same lock in the look before, or nil.
func lockOf(i mortise.LockInfo, now time.Time, before *lock) *lock {
	l := &lock{
		Name: i.Name, Kind: i.Kind, Held: i.Held, Owner: i.Owner, Host: i.Host, PID: i.PID, Left: i.Remaining.Milliseconds(),
		Holds: i.Holds, Readers: i.Readers, Token: i.Token, Waiters: i.Waiters,
		since: i.Since, end: now.Add(i.Remaining), Known: !i.Since.IsZero(),
	}
	if !l.Known {
		l.since = now
	}
	l.Lease = l.Left
	if before != nil && before.Owner == l.Owner {
		l.Lease = max(l.Left, before.Lease)
		if !l.Known {
			l.since = before.since
		}
	}
	l.Age = max(0, now.Sub(l.since).Milliseconds())
	for _, w := range i.Queue {
		age := int64(-1)
		if !w.Since.IsZero() {
			age = max(0, now.Sub(w.Since).Milliseconds())
		}
		l.Queue = append(l.Queue, waiter{cmp.Or(w.Owner, w.Tag), age})
	}
	return l
}

// older sorts by age, then by name.
func older(a, b *lock) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.Name, b.Name)) }

// list keeps the oldest locks of a store from look to look: its memory is that of what is shown.
type list struct {
	locks Store
	most  int
	shown []*lock
	total int
	whole bool // a look has read the whole list
	err   string
	sent  *state
}

// tellsEvery is how often the first look tells what it has found.
const tellsEvery = 250 * time.Millisecond

// answersWithin bounds a look.
const answersWithin = 30 * time.Second

// look reads all locks of the store, and keeps the oldest. A look that fails keeps those of the look before. The first
// tells viewers soon what it has found so far.
func (s *list) look(ctx context.Context, soon func([]byte)) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	before := make(map[string]*lock, len(s.shown))
	for _, l := range s.shown {
		before[l.Name] = l
	}
	var shown []*lock
	total, problem, told := 0, "", time.Now()
	for info, err := range s.locks.Locks(ctx, "") {
		if err != nil {
			problem = err.Error()
			break
		}
		total++
		now := time.Now()
		shown = append(shown, lockOf(info, now, before[info.Name]))
		tells := !s.whole && now.Sub(told) >= tellsEvery
		if tells || len(shown) >= 2*s.most+100 {
			shown, total = oldest(shown, s.most, total)
		}
		if tells {
			told = now
			soon(encode(&state{Locks: shown, Total: total, Reading: true}))
		}
	}
	if problem == "" || !s.whole {
		s.shown, s.total = oldest(shown, s.most, total)
	}
	s.whole = s.whole || problem == ""
	s.err = problem
	return s.encode()
}

// oldest keeps the n oldest, each name once. What was listed twice is not counted twice where both are there.
func oldest(all []*lock, n, total int) ([]*lock, int) {
	slices.SortFunc(all, func(a, b *lock) int { return cmp.Or(cmp.Compare(a.Name, b.Name), older(a, b)) })
	kept := slices.CompactFunc(all, func(a, b *lock) bool { return a.Name == b.Name })
	total -= len(all) - len(kept)
	slices.SortFunc(kept, older)
	return kept[:min(n, len(kept))], total
}

// encode encodes what is shown, unless the viewers have it.
func (s *list) encode() ([]byte, bool) {
	now := &state{Locks: s.shown, Total: s.total, Error: s.err}
	if b := s.sent; b != nil && b.Total == now.Total && b.Error == now.Error &&
		slices.EqualFunc(b.Locks, now.Locks, same) {
		return nil, false
	}
	s.sent = now
	return encode(now), true
}

func encode(s *state) []byte {
	if s.Locks == nil {
		s.Locks = []*lock{}
	}
	b, err := json.Marshal(s) // also what is HTML is escaped in it
	if err != nil {
		panic(err) // a state has only strings and numbers
	}
	return b
}

// single looks at one lock.
type single struct {
	locks Store
	name  string
	last  *lock
	list  // what the viewers have
}

func (s *single) look(ctx context.Context, _ func([]byte)) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	info, err := s.locks.Inspect(ctx, s.name)
	s.err = ""
	if err != nil {
		s.err = err.Error()
	} else {
		s.last = lockOf(info, time.Now(), s.last)
		s.shown, s.total = []*lock{s.last}, 1
	}
	return s.encode()
}
