package engine

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/campaign"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Event has the fields of all events of an observer. Package mortise documents which event has which.
type Event struct {
	Client            string
	Name, Kind, Owner string
	Lease             uint64
	Context           context.Context
	Way
	Held, Took, Remaining time.Duration
	Asked                 bool
	Reason                string
	Holds                 int
	Token                 int64
	Err                   error
}

// Way says how long a call has taken, and whether it had to wait.
type Way struct {
	Waited    time.Duration
	Contended bool
}

// Observer has the functions that are called with a client's events; each may be nil.
type Observer struct {
	Waiting, Acquired, NotAcquired, Renewed, RenewalFailed, Lost, Released func(Event)
}

// kinds are the names of the kinds in events.
var kinds = [...]string{
	backend.KindLock: "lock", backend.KindCountDownLatch: "latch", backend.KindCountingSemaphore: "counting_semaphore",
	backend.KindSemaphore: "semaphore", backend.KindRead: "read", backend.KindWrite: "write",
	backend.KindFair: "fair", backend.KindDelegated: "lock",
}

// event returns the event of a call without a lease.
func (c *call) event() Event {
	return Event{
		Client: c.engine.Config.Name, Name: c.Name, Kind: kinds[c.marks.asked], Context: c.under,
		Way: Way{Waited: c.engine.Since(c.since), Contended: c.marks.contended},
	}
}

// tenureEvent returns the event of a tenure's renewal.
func tenureEvent(t *tenure) Event {
	return Event{Client: t.engine.Config.Name, Name: t.Key.Name, Kind: kinds[t.family], Owner: t.Owner}
}

// holdEvent returns the event of a lease.
func holdEvent(h *lease.Hold) Event {
	v := tenureEvent(of(h))
	v.Kind, v.Lease, v.Context = kinds[h.Family], h.Number, h.Under
	return v
}

// waiting reports that the call waits. It calls the observer on the caller's goroutine, without the mutex.
func (c *call) waiting(remaining time.Duration) {
	v := c.event()
	v.Remaining = remaining
	c.engine.Config.Observer.Waiting(v)
}

// tellsWaiting reports whether to call waiting: at the first call only, and if the observer wants the event.
func (c *call) tellsWaiting() bool {
	before := c.marks.contended
	c.marks.contended = true
	return !before && c.engine.Config.Observer.Waiting != nil
}

// notAcquired reports that the call failed. A wrong argument is reported only after a wait, whose end the observer
// awaits. A LockAll that waits does not report a refused try: it waits for that lock next.
func (c *call) notAcquired(err error) {
	if c.engine.announce.Logs() && campaign.Is(c.under) {
		c.engine.logCampaign(c.Name, err)
	}
	f := c.engine.Config.Observer.NotAcquired
	switch {
	case f == nil, errors.Is(err, fail.Invalid) && !c.marks.contended:
		return
	case c.Part && c.Try && errors.Is(err, fail.NotAcquired):
		return
	}
	v := c.event()
	v.Err = err
	f(v)
}

// logCampaign logs a step of package leader, if it failed and is repeated. After a step that succeeded it takes back
// what was to be logged.
func (e *Engine) logCampaign(name string, err error) {
	switch {
	case errors.Is(err, fail.Unavailable):
		e.announce.Sum(announce.CampaignFailed, name, "name", fail.Shorten(name), "err", err)
	case err == nil:
		e.announce.Drop(announce.CampaignFailed, name)
	}
}

// acquired reports that the call acquired h, with the hold count holds. h is nil for a count, which has no lease.
func (c *call) acquired(h *lease.Hold, holds int) {
	f := c.engine.Config.Observer.Acquired
	if f == nil {
		return
	}
	v := c.event()
	if h == nil {
		f(v)
		return
	}
	way := v.Way
	v = holdEvent(h)
	v.Way, v.Holds = way, holds
	v.Token, _ = h.Token()
	c.marks.contended = false // a later event of the call begins without a wait
	returned := false
	defer func() {
		if !returned { // the observer panicked: the caller does not get the lease, so it is unlocked
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = h.Unlock(ended) // the release is sent even with an ended context
		}
	}()
	f(v)
	returned = true
	c.engine.lock()
	h.Marks.Announced = true
	lost := h.OnLost
	c.engine.unlock()
	if lost != nil {
		c.engine.announce.Event(lost)
	}
}

// tellLost reports the loss of h. If the observer was not told of the acquisition yet, acquired calls h.OnLost later.
func tellLost(t *tenure, h *lease.Hold, held time.Duration, cause error, why reason) {
	f := t.engine.Config.Observer.Lost
	if f == nil {
		return
	}
	t.engine.tell(func() {
		lost := func() {
			v := holdEvent(h)
			v.Held, v.Err, v.Reason, v.Asked = held, cause, string(why), why == byOption
			f(v)
		}
		if t.engine.Config.Observer.Acquired != nil {
			t.engine.lock()
			early := !h.Marks.Announced
			if early {
				h.OnLost = lost
			}
			t.engine.unlock()
			if early {
				return
			}
		}
		lost()
	})
}
