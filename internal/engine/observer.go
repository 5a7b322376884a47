package engine

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Event is what an observer is told; package mortise documents each, with the fields that it has.
type Event struct {
	Client            string
	Name, Kind, Owner string
	Lease             uint64
	Context           context.Context
	Way
	Held, Took, Remaining time.Duration
	Asked                 bool
	Holds                 int
	Token                 int64
	Err                   error
}

// Way is what lies behind a call that is answered.
type Way struct {
	Waited    time.Duration
	Contended bool
}

// Observer is told what a client does; functions may be nil.
type Observer struct {
	Waiting, Acquired, NotAcquired, Renewed, RenewalFailed, Lost, Released func(Event)
}

// kinds are the families' names, for observers.
var kinds = [...]string{
	backend.KindLock: "lock", backend.KindCountDownLatch: "latch", backend.KindCountingSemaphore: "counting_semaphore",
	backend.KindSemaphore: "semaphore", backend.KindRead: "read", backend.KindWrite: "write",
	backend.KindFair: "fair", backend.KindDelegated: "lock",
}

// event is that of a call that has no lease, or none yet.
func (c *call) event() Event {
	return Event{
		Client: c.engine.Config.Name, Name: c.Name, Kind: kinds[c.Family], Context: c.under,
		Way: Way{Waited: c.engine.Since(c.since), Contended: c.marks.contended},
	}
}

// tenureEvent is that of a tenure's renewals.
func tenureEvent(t *tenure) Event {
	return Event{Client: t.engine.Config.Name, Name: t.Key.Name, Kind: kinds[t.family], Owner: t.Owner}
}

// holdEvent is that of a lease.
func holdEvent(h *lease.Hold) Event {
	v := tenureEvent(of(h))
	v.Kind, v.Lease, v.Context = kinds[h.Family], h.Number, h.Under
	return v
}

// waiting tells that the call waits. It is called without the mutex.
func (c *call) waiting(remaining time.Duration) {
	v := c.event()
	v.Remaining = remaining
	c.engine.Config.Observer.Waiting(v)
}

// tellsWaiting reports, once a call, whether the observer is to be told that it waits.
func (c *call) tellsWaiting() bool {
	before := c.marks.contended
	c.marks.contended = true
	return !before && c.engine.Config.Observer.Waiting != nil
}

// notAcquired tells that the call returned an error. A lock of several that is tried and is held is waited for next.
func (c *call) notAcquired(err error) {
	if f := c.engine.Config.Observer.NotAcquired; f != nil && !(c.Part && c.Try && errors.Is(err, fail.NotAcquired)) {
		v := c.event()
		v.Err = err
		f(v)
	}
}

// acquired tells that the call got what it asked for: h with a hold count, or what no lease stands for, nil.
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
	c.marks.contended = false // one of LockAll's that is given back may wait once more
	returned := false
	defer func() {
		if !returned { // a lease that nothing can unlock
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = h.Unlock(ended) // it is sent all the same
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

// tellLost announces the loss of h, after its acquisition. Asked: it is the end that Lock was asked for.
func tellLost(t *tenure, h *lease.Hold, held time.Duration, cause error, asked bool) {
	f := t.engine.Config.Observer.Lost
	if f == nil {
		return
	}
	t.engine.tell(func() {
		lost := func() {
			v := holdEvent(h)
			v.Held, v.Err, v.Asked = held, cause, asked
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
