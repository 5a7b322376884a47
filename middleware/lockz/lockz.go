// Package lockz is a page of what this process holds and waits for, and where in the program: for the engineer who asks
// why a process does not go on. Mount it beside pprof.
//
//	page := lockz.New()
//	locks, err := mortise.New(store, mortise.WithObserver(page.Observer()))
//	mux.Handle("/debug/lockz", page)
//
// What other processes hold is in the store: see package console, and the command mortise.
package lockz

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/callsite"
)

// Page keeps the leases and the waiting calls of clients, and is an http.Handler that shows them. Make it with New; its
// methods may be called concurrently.
type Page struct {
	mu       sync.Mutex
	trackers []*tracker
}

// New returns a page without clients.
func New() *Page { return new(Page) }

// Observer returns the functions that tell the page of one client: each client of the process needs an Observer of its
// own. Memory grows with the leases held and the calls that wait, and with nothing else. Cost: no command; an entry and
// the caller's program counter for each Lock, and for each call that waits.
func (p *Page) Observer() mortise.Observer {
	t := &tracker{leases: make(map[uint64]entry), waits: make(map[wait][]entry)}
	p.mu.Lock()
	p.trackers = append(p.trackers, t)
	p.mu.Unlock()
	return mortise.Observer{
		Waiting:     t.waiting,
		Acquired:    t.acquired,
		NotAcquired: t.waited,
		Lost:        t.ended,
		Released:    t.ended,
	}
}

// tracker has what one client holds and waits for.
type tracker struct {
	mu     sync.Mutex
	leases map[uint64]entry // by number
	waits  map[wait][]entry
}

// wait is what the events of a call that waits have in common. Calls that cannot be told apart are interchangeable.
type wait struct {
	ctx        context.Context
	name, kind string
}

func waitOf(e mortise.Event) wait {
	ctx := e.Context
	if !reflect.ValueOf(ctx).Comparable() { // a context of the user's own type
		ctx = nil
	}
	return wait{ctx, e.Name, e.Kind}
}

// entry is a lease or a call that waits.
type entry struct {
	event mortise.Event
	since time.Time
	site  callsite.Site
}

// entryOf is called by a method that the client calls on the goroutine of the user's call.
func entryOf(e mortise.Event) entry {
	return entry{event: e, since: time.Now(), site: callsite.Of(e.Context, 2)}
}

func (t *tracker) waiting(e mortise.Event) {
	x, w := entryOf(e), waitOf(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waits[w] = append(t.waits[w], x)
}

func (t *tracker) acquired(e mortise.Event) {
	t.waited(e)
	if e.Lease == 0 { // a count, a latch or a tick: nothing is held that ends by itself
		return
	}
	x := entryOf(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases[e.Lease] = x
}

// waited removes the entry of a call that does not wait any more.
func (t *tracker) waited(e mortise.Event) {
	if !e.Contended {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := waitOf(e)
	switch all := t.waits[w]; len(all) {
	case 0:
	case 1:
		delete(t.waits, w)
	default:
		t.waits[w] = all[1:]
	}
}

func (t *tracker) ended(e mortise.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.leases, e.Lease)
}

// entries returns what clients hold and wait for, of names with a prefix, the oldest first.
func (p *Page) entries(prefix string) (held, waiting []entry) {
	p.mu.Lock()
	trackers := slices.Clone(p.trackers)
	p.mu.Unlock()
	for _, t := range trackers {
		t.mu.Lock()
		held = slices.AppendSeq(held, maps.Values(t.leases))
		for all := range maps.Values(t.waits) {
			waiting = append(waiting, all...)
		}
		t.mu.Unlock()
	}
	other := func(x entry) bool { return !strings.HasPrefix(x.event.Name, prefix) }
	oldest := func(a, b entry) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.event.Name, b.event.Name),
			cmp.Compare(a.event.Lease, b.event.Lease))
	}
	held, waiting = slices.DeleteFunc(held, other), slices.DeleteFunc(waiting, other)
	slices.SortFunc(held, oldest)
	slices.SortFunc(waiting, oldest)
	return held, waiting
}
