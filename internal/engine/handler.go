package engine

import (
	"math/rand/v2"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/timerq"
)

const (
	// hintInterval is how often a change of the record makes a waiter ask. Each renewal of each reader is one.
	hintInterval = 250 * time.Millisecond
	// hintDelay is how long an enrolled waiter lets a change of the record rest, up to twice as long: a release is told
	// to some client, too; only what is not told, an expiry or a deletion, is worth asking.
	hintDelay = 250 * time.Millisecond
	// silence is how long the client of the first entry has to ask before others do.
	silence = 250 * time.Millisecond
	// checkWithin is when a tenure, told of a change that need not concern it, asks whether it still holds. Its
	// question changes nothing, or tenures would tell each other for ever.
	checkWithin = time.Second
)

// handler is the engine as its session sees it.
type handler Engine

var (
	_ backend.Handler      = (*handler)(nil)
	_ backend.WatchFailer  = (*handler)(nil)
	_ backend.QueueHandler = (*handler)(nil)
)

// Watching tells that t is watched from now on.
func (h *handler) Watching(t backend.Topic) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if l := e.names.fair.all[t.Name]; l != nil {
		l.listening(t)
	}
	w := e.names.watches.all[t]
	if n := e.names.records[t]; w != nil && w.confirmed && n.first() != nil {
		n.deaf = nil // after an interruption: the clients of a server do not all ask at once
		if at := e.Now().Mono + int64(rand.N(reunion)); !n.RechecksBefore(at) {
			n.Recheck(at)
		}
		return
	}
	if w != nil {
		w.confirmed = true
	}
	h.heard(t, nil)
}

// Released tells that t was released.
func (h *handler) Released(t backend.Topic) { h.released(t, true) }

// released is Released; foreign reports that it may have been by a client that does not enrol.
func (h *handler) released(t backend.Topic, foreign bool) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	e.names.fair.barged(t)
	n := e.names.records[t]
	// What is being asked may have been answered before the release, and tell that the entry is the first.
	if n.first() == nil || !n.enrolled || n.Asking() && !n.foremost {
		h.heard(t, nil)
		return
	}
	// It served no entry: the client of the first one asks, the others if that one stays silent.
	if n.foremost {
		n.foremost, n.heard = false, n.heard || foreign
		n.Notify()
		return
	}
	h.recheckSoon(n)
}

// Freed tells that t was released, and no entry was in its queue then: one of this client came later, or is lost.
func (h *handler) Freed(t backend.Topic) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	e.names.fair.barged(t)
	if n := e.names.records[t]; n.first() != nil && n.enrolled {
		h.recheckSoon(n)
		return
	}
	h.heard(t, nil)
}

// recheckSoon has n's first waiter ask if the client of the first entry stays silent.
func (h *handler) recheckSoon(n *name) {
	if at := (*Engine)(h).Now().Mono + int64(2*silence+rand.N(2*silence)); !n.RechecksBefore(at) {
		n.Recheck(at)
	}
}

// WatchFailed tells that t cannot be watched, for a reason that does not pass by itself.
func (h *handler) WatchFailed(t backend.Topic, err error) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	h.heard(t, err)
}

// heard has the first waiter look; deaf is why releases cannot be heard of, if so.
func (h *handler) heard(t backend.Topic, deaf error) {
	if n := h.names.records[t]; n != nil && n.waiters != nil { // otherwise it comes late and concerns no call
		n.deaf = deaf
		n.Notify()
	}
}

// Reserved tells that t is reserved for an entry of this client.
func (h *handler) Reserved(t backend.Topic, entry uint64) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if n := h.entered(t, entry); n != nil {
		n.Notify()
	}
}

// First tells that an entry of this client is the first in the queue of t.
func (h *handler) First(t backend.Topic, entry uint64, after time.Duration) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if n := h.entered(t, entry); n != nil {
		n.foremost = true
		n.Recheck(e.Now().Mono + int64(after+time.Millisecond))
	}
}

// Wanted tells that another client waits for t, which went on here because nothing else waited.
func (h *handler) Wanted(t backend.Topic, entry uint64) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if n := e.names.records[t]; n.first() != nil && uint64(n.entry) == entry {
		n.budget.Wanted()
	}
}

// entered is what waits under an entry. Where nothing does any more, the entry goes.
func (h *handler) entered(t backend.Topic, entry uint64) *name {
	n := h.names.records[t]
	if n.first() != nil && uint64(n.entry) == entry {
		return n
	}
	if !h.calls.over {
		h.names.leave(t, entry)
	}
	return nil
}

// Changed tells that the record of t has changed: a waiter looks, a tenure asks whether it still holds.
func (h *handler) Changed(t backend.Topic) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if n := e.names.records[t]; n != nil {
		h.changed(n)
	}
	e.names.verifyEntered(t)
}

// ChangedAll tells that any record may have changed.
func (h *handler) ChangedAll() {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	for _, n := range e.names.records {
		h.changed(n)
		if t := n.holder(); t != nil && t.Delegated.Load() {
			t.verify()
		}
	}
	for _, t := range e.names.permits { // the second time a tenure has nothing to do
		t.verify()
	}
}

func (h *handler) changed(n *name) {
	e := (*Engine)(h)
	if n.topic.Kind == backend.KindWrite {
		h.changedRW(n)
		return
	}
	n.Changes++
	if t := n.holder(); t != nil {
		t.hinted()
	}
	if !n.recheckIfEnrolled(e.Now().Mono) {
		n.queue().Notify()
	}
}

// recheckIfEnrolled has the first waiter ask after a while, and reports whether it is enrolled, or asks to be.
func (n *name) recheckIfEnrolled(now int64) bool {
	if n.first() == nil || !n.enrolled && !(n.Asking() && n.enrols) {
		return false
	}
	rests := hintDelay + rand.N(hintDelay) // all clients hear of it at the same time
	if at := max(now+int64(rests), n.hinted+int64(hintInterval)); !n.RechecksBefore(at) {
		n.hinted = at
		n.Recheck(at)
	}
	return true
}

// changedRW is changed for a read-write lock, whose record changes as often as its readers renew.
func (h *handler) changedRW(n *name) {
	e := (*Engine)(h)
	now := e.Now()
	if t := n.holder(); t != nil {
		t.verify()
	}
	for r := range n.Readers {
		ofTenure(r).checkSoon(now)
	}
	if n.recheckIfEnrolled(now.Mono) || n.first() == nil || n.hint.Waits() {
		return
	}
	w := n.waiters
	ask := func(now clock.Instant) {
		w.hinted = now.Mono
		w.Notify()
	}
	if at := w.hinted + int64(hintInterval); w.hinted != 0 && now.Mono < at {
		e.renewer.timers.Put(&w.hint, at, timerq.Func(ask))
		return
	}
	ask(now)
}

// verifyEntered has the store asked whether tenures that entered under another still hold what they hold.
func (s *names) verifyEntered(t backend.Topic) {
	if t.Kind == backend.KindLock {
		for x := range s.entered[t.Name] {
			x.hinted()
		}
	}
}
