package engine

import (
	"math/rand/v2"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/timerq"
)

const (
	// hintInterval is the least time between two requests caused by changes of the record. A reader's renewal is a
	// change.
	hintInterval = 250 * time.Millisecond
	// hintDelay is the least delay, and half of the longest, of an enrolled waiter's request after a change of the
	// record. The store notifies a client of a release anyway: only an expiry or a deletion makes the request
	// necessary.
	hintDelay = 250 * time.Millisecond
	// silence is half of the least time, and a quarter of the longest, that the client of the first entry has to ask
	// before other clients do.
	silence = 250 * time.Millisecond
	// checkWithin bounds the delay of a tenure's verification after a change of a record that has other owners, too. A
	// renewal instead would be a change, and the owners would notify each other for ever.
	checkWithin = time.Second
)

// handler is the Engine as the backend.Handler of its session.
type handler Engine

var (
	_ backend.Handler      = (*handler)(nil)
	_ backend.WatchFailer  = (*handler)(nil)
	_ backend.QueueHandler = (*handler)(nil)
)

// Watching implements backend.Handler.
func (h *handler) Watching(t backend.Topic) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if l := e.names.fair.all[t.Name]; l != nil {
		l.listening(t)
	}
	w := e.names.watches.all[t]
	if n := e.names.records[t]; w != nil && w.confirmed && n.first() != nil {
		n.watchErr = nil // the watch was interrupted: the clients of a server must not all ask at once
		if at := e.Now().Mono + int64(rand.N(reunion)); !n.RechecksBefore(at) {
			n.Recheck(at)
		}
		return
	}
	if w != nil {
		w.confirmed = true
	}
	h.wakeFirst(t, nil)
}

// Released implements backend.Handler.
func (h *handler) Released(t backend.Topic) { h.released(t, true) }

// released is Released. Foreign: the lock may have been released by a foreign client.
func (h *handler) released(t backend.Topic, foreign bool) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	e.names.fair.barged(t)
	n := e.names.records[t]
	// The reply to a request on its way may be older than the release, and say that the entry is the first: ask again.
	if n.first() == nil || !n.enrolled || n.Asking() && !n.firstInStore {
		h.wakeFirst(t, nil)
		return
	}
	// The release served no entry. The client of the first entry asks at once, other clients later.
	if n.firstInStore {
		n.firstInStore, n.heard = false, n.heard || foreign
		n.Notify()
		return
	}
	h.recheckSoon(n)
}

// Freed implements backend.QueueHandler. An entry of this client came after the release, or is lost: it need not ask
// at once.
func (h *handler) Freed(t backend.Topic) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	e.names.fair.barged(t)
	if n := e.names.records[t]; n.first() != nil && n.enrolled {
		h.recheckSoon(n)
		return
	}
	h.wakeFirst(t, nil)
}

// recheckSoon makes n's first waiter ask later, in case the client of the first entry does not: see silence.
func (h *handler) recheckSoon(n *name) {
	if at := (*Engine)(h).Now().Mono + int64(2*silence+rand.N(2*silence)); !n.RechecksBefore(at) {
		n.Recheck(at)
	}
}

// WatchFailed implements backend.WatchFailer.
func (h *handler) WatchFailed(t backend.Topic, err error) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	h.wakeFirst(t, err)
}

// wakeFirst wakes the first waiter of t to ask. WatchErr is why t cannot be watched; nil if it can.
func (h *handler) wakeFirst(t backend.Topic, watchErr error) {
	if n := h.names.records[t]; n != nil && n.waiters != nil { // otherwise the message is late
		n.watchErr = watchErr
		n.Notify()
	}
}

// Reserved implements backend.QueueHandler.
func (h *handler) Reserved(t backend.Topic, entry uint64) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if n := h.waitersOf(t, entry); n != nil {
		n.Notify()
	}
}

// First implements backend.QueueHandler.
func (h *handler) First(t backend.Topic, entry uint64, after time.Duration) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if n := h.waitersOf(t, entry); n != nil {
		n.firstInStore, n.before = true, e.Now().Mono+int64(after+time.Millisecond)
		n.Recheck(n.before)
	}
}

// Wanted implements backend.QueueHandler: another client waits for t, so an extra budget ends.
func (h *handler) Wanted(t backend.Topic, entry uint64) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if n := e.names.records[t]; n.first() != nil && uint64(n.entry) == entry {
		n.budget.Wanted()
	}
}

// waitersOf returns the name whose waiters have an entry. If there are none, the entry leaves the store's queue, unless
// it has an owner: that leaves when it is given up.
func (h *handler) waitersOf(t backend.Topic, entry uint64) *name {
	n := h.names.records[t]
	if n.first() != nil && uint64(n.entry) == entry {
		return n
	}
	if !h.store.grants(t.Kind) {
		h.names.leave(t, entry, "")
	}
	return nil
}

// Changed implements backend.Handler: the first waiter asks, and tenures in the record verify.
func (h *handler) Changed(t backend.Topic) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	if n := e.names.records[t]; n != nil {
		h.changed(n)
	}
	e.names.verifyEntered(t)
}

// ChangedAll implements backend.Handler.
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
	for _, t := range e.names.permits { // a tenure may occur several times; verify is then repeated without effect
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
	if t := n.holder(); t != nil && t.first == 0 { // otherwise the grant itself was a change, and it is confirmed soon
		t.hinted()
	}
	if !n.recheckIfEnrolled(e.Now().Mono) {
		n.queue().Notify()
	}
}

// recheckIfEnrolled makes the first waiter ask after hintDelay, if it is enrolled or asks to be; it reports whether.
func (n *name) recheckIfEnrolled(now int64) bool {
	if n.first() == nil || !n.enrolled && !(n.Asking() && n.enrols) {
		return false
	}
	rests := hintDelay + rand.N(hintDelay) // all clients get the message at the same time
	if at := max(now+int64(rests), n.hinted+int64(hintInterval)); !n.RechecksBefore(at) {
		n.hinted = at
		n.Recheck(at)
	}
	return true
}

// changedRW is changed for a read-write lock. Its record changes each time that a reader renews.
func (h *handler) changedRW(n *name) {
	e := (*Engine)(h)
	now := e.Now()
	if t := n.holder(); t != nil && t.first == 0 { // see changed
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

// verifyEntered makes the tenures that entered under an owner of t, by delegation, verify.
func (s *names) verifyEntered(t backend.Topic) {
	if t.Kind == backend.KindLock {
		for x := range s.callees[t.Name] {
			x.hinted()
		}
	}
}
