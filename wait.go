package mortise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/mortise-go/mortise/backend"
)

const (
	// suspicion is how long a waiter is blocked by its own client's holder before it
	// says so in the log.
	suspicion = 10 * time.Second
	// lookAgain is when a waiter looks again though the record has no end.
	lookAgain = 30 * time.Second
	// lookBack is how often a waiter asks whether a store that failed is back, at the least: locking
	// is to resume within a second of a new master.
	lookBack = 400 * time.Millisecond
)

// queueUp waits for the lock.
func (c *Client) queueUp(ctx, wait context.Context, r *request) (lease *Lease, err error) {
	if r.family == backend.KindWrite {
		c.begin() // Shutdown waits until its claim is being withdrawn
		defer c.end()
	}
	r.relays = c.relay != nil && r.family == backend.KindLock && r.age == nil && r.kind.Spin == 0
	err = c.stand(wait, r.topic(), r, func() (answer, error) {
		var g grant
		var err error
		r.claims = r.family == backend.KindWrite
		lease, g, err = c.request(ctx, wait, r)
		more := g.available > 0 || r.family == backend.KindRead
		return answer{got: lease != nil, more: more, left: g.remaining, again: c.claimAgain(&g), waits: g.waits, failure: g.err}, err
	})
	if err != nil && r.claims {
		c.withdraw(r.topic())
	}
	return lease, err
}

// answer is what the store said to one who waits.
type answer struct {
	got     bool
	more    bool          // there is more, for the next
	left    time.Duration // until it may be had without a release; negative if never
	look    time.Duration // when to ask again, if that is another time; else 0
	again   time.Duration // when to ask again at the latest, if positive
	waits   bool          // it will be told when it is its turn
	failure error         // the store's; ask is to be called again if it may pass
}

// stand waits in t's queue until ask gets what it asks for. While it is the head it
// asks each time something may have changed the answer. Before it first sleeps on
// the store it has t watched and asks again, so that no release falls between; a
// spinning one backs off instead. ask
// returns *callerGone when wait ended; what stand returns is an *Error.
func (c *Client) stand(wait context.Context, t backend.Topic, r *request, ask func() (answer, error)) error {
	w := &r.waiter
	if w.seat != 0 {
		w = new(waiter)
	}
	if r.relays && r.replicas.n == 0 { // what is handed over is not waited for
		w.request = r
	}
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		return r.fail(ErrClosed)
	}
	q := c.queueOf(t)
	c.expect(q)
	q.push(w)
	if w.permits > 0 && q.head != w && w.permits <= q.free {
		q.stir() // what is free is not enough for the head, but for this one
	}
	var (
		timer  *time.Timer
		last   error // the store's last failure, nil after an answer
		waited bool  // it has slept: what fails now is an interruption
		warned bool
		pause  = r.kind.Spin
		err    error
	)
	for err == nil {
		if w.served {
			c.leave(q, w)
			return nil
		}
		if q.deaf != nil && q.head == w {
			err = c.explain(q.deaf)
			break
		}
		if c.shut && w.handed == nil {
			err = errClosing
			break
		}
		now := r.since
		if !r.fresh {
			now = c.now()
		}
		if w.handed != nil || q.head == w && q.holder == nil && (q.events != q.seen || now.mono >= min(q.retryAt, q.checkAt)) {
			before := q.retryAt
			r.handed, w.handed = w.handed, nil
			r.waits = r.relays && r.handed == nil && c.hears(t)
			q.seen = q.events
			q.retryAt, q.ends = never, never
			q.checkAt = never
			a, gone := c.question(q, w, r, ask)
			if !a.got {
				nowWaits(wait)
			}
			switch {
			case gone != nil:
				q.events++ // what woke us, if anything did, is the next one's
				err = gone
			case a.got:
				q.trouble = time.Time{}
				if r.waits {
					q.inTurn = false
				}
				if before != never && r.ttl > 0 { // what was got may be the first to end
					before = min(before, c.now().mono+int64(r.ttl+time.Millisecond))
				}
				switch {
				case q.holder != nil: // who wakes the next
				case a.more || !q.refused || before == never:
					q.events++
				default:
					q.retryAt = before
				}
				c.leave(q, w)
				c.giveUp(r, w) // it has two: one was removed by somebody, and had again by another of this client
				return nil
			case a.failure != nil:
				last = a.failure
				if q.trouble.IsZero() {
					q.trouble = time.Now()
				}
				if !waited && !r.refusedBefore || !backend.FaultOf(last).Temporary || time.Since(q.trouble) > c.watchdog || errors.Is(last, errClosing) {
					q.events++
					err = c.explain(last)
					break
				}
				q.retryAt = c.now().mono + int64(min(time.Since(q.trouble)/2+50*time.Millisecond, lookBack))
			default:
				last, q.trouble, q.answered = nil, time.Time{}, true
				left := a.left
				if r.endless = left < 0; r.endless {
					left = lookAgain
				}
				q.ends = c.now().mono + int64(left)
				if pause > 0 {
					q.retryAt = c.now().mono + int64(min(left, pause/2+rand.N(pause)))
					pause = min(2*pause, 64*r.kind.Spin)
					break
				}
				q.refused = true
				q.inTurn = q.inTurn || a.waits
				if a.look > 0 {
					left = a.look
				}
				if a.again > 0 {
					left = min(left, a.again)
				}
				q.retryAt = c.now().mono + int64(left+time.Millisecond)
				c.mu.Unlock()
				c.syncWatch(t)
				c.mu.Lock()
			}
			continue
		}

		if !waited {
			waited = true
			nowWaits(wait)
			if r.contends() && c.observer.Waiting != nil {
				left := q.remaining(now)
				r.fresh = false
				c.mu.Unlock()
				c.observer.Waiting(WaitingEvent{Subject: r.subject(), Remaining: left})
				c.mu.Lock()
				continue
			}
		}
		sleep := time.Duration(never)
		if at := min(q.retryAt, q.checkAt); q.head == w && q.holder == nil && at != never {
			sleep = time.Duration(at - now.mono)
			q.sleeps = at
		} else if q.head == w {
			q.sleeps = never
		}
		if holder := c.holderOf(q); c.log != nil && !warned && holder != nil {
			if left := suspicion - time.Duration(now.mono-r.since.mono); left > 0 {
				sleep = min(sleep, left)
			} else {
				warned = true
				c.teller.line(slog.LevelWarn, "mortise: waiting long for a lock that this client itself holds; if the holder is the one who waits, give Lock its lease's Context so that it enters again",
					"name", shorten(r.name), "owner", holder.id, "waited", time.Duration(now.mono-r.since.mono))
				continue
			}
		}
		r.fresh = false
		if w.ready == nil {
			w.ready = make(chan struct{}, 1)
		}
		c.mu.Unlock()
		timer = after(timer, sleep)
		select {
		case <-w.ready:
		case <-timer.C:
		case <-wait.Done():
			err = gone(wait)
		case <-c.closing:
			err = errClosing
		}
		c.mu.Lock()
	}
	left := q.remaining(c.now())
	// What ends before the store had its time to answer has waited for another call of this client.
	behind := 0 < r.wait && r.wait < firstAnswer && c.since(r.since) < firstAnswer
	if left < 0 && (q.answered || r.refusedBefore || behind) {
		left = 0 // held, for how long is being asked just now
	}
	if t.Kind != backend.KindLock {
		q.events++ // the next may ask for less, or to read: what this one was told says nothing to it
	}
	c.leave(q, w)
	c.giveUp(r, w)
	if timer != nil {
		timer.Stop()
	}
	return r.gaveUp(err, left, last)
}

// question asks, without the mutex. Where ask panics, w does not wait any more.
func (c *Client) question(q *queue, w *waiter, r *request, ask func() (answer, error)) (a answer, gone error) {
	answered := false
	c.setOff(r)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.arrived(r)
		if !answered {
			q.events++
			c.leave(q, w)
			c.giveUp(r, w)
		}
	}()
	a, gone = ask()
	answered = true
	return a, gone
}

// giveUp gives back what w, who has left, was handed too late.
func (c *Client) giveUp(r *request, w *waiter) {
	if h := w.handed; h != nil { // nobody hands it anything any more
		c.abandon(r, h.owner, &h.grant)
		c.end()
	}
}

// hears tells whether the session has confirmed that it watches t.
func (c *Client) hears(t backend.Topic) bool {
	w := c.watched[t]
	return w != nil && w.confirmed
}

// leave takes w out of its queue. It is called with the mutex and lets it go.
func (c *Client) leave(q *queue, w *waiter) {
	q.remove(w)
	c.tidy(q)
	settled := c.watchSettled(q.topic)
	c.mu.Unlock()
	if !settled {
		c.syncWatch(q.topic)
	}
}

// remaining is what is left of the holder's lease as far as known; negative if it is not.
func (q *queue) remaining(now instant) time.Duration {
	switch {
	case q.holder != nil:
		return max(q.holder.deadline.until(now), 0)
	case q.ends != never:
		return max(time.Duration(q.ends-now.mono), 0)
	}
	return -1
}

// gaveUp makes the error of a Lock that did not get the lock.
func (r *request) gaveUp(err error, left time.Duration, last error) error {
	if errors.Is(err, errClosing) {
		return r.fail(ErrClosed)
	}
	var caller *callerGone
	if !errors.As(err, &caller) {
		return r.fail(err)
	}
	if !errors.Is(caller.cause, errWaitOver) {
		return r.fail(err)
	}
	if last != nil {
		return r.fail(fmt.Errorf("%w: still so after %v: %w", ErrUnavailable, r.wait, last))
	}
	if left < 0 {
		return r.fail(fmt.Errorf("%w: the store gave no answer in time, with a wait of %v", ErrUnavailable, r.wait))
	}
	if r.endless {
		left = -1
	}
	return r.notAcquired(left, fmt.Sprintf("%s for all of %v", r.missing("held"), r.wait))
}

// after sets t, making it if it is nil.
func after(t *time.Timer, d time.Duration) *time.Timer {
	if t == nil {
		return time.NewTimer(d)
	}
	t.Reset(d)
	return t
}
