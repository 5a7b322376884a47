package mortise

import (
	"time"

	"github.com/mortise-go/mortise/backend"
)

// repetition sends something in the background, again and again, until it is done
// or can no longer matter.
type repetition struct {
	client *Client
	send   func() (done bool)
	gaveUp func() // called if it was not done in time; may be nil
	until  int64  // monotonic
	began  instant
	every  time.Duration
	sent   bool // once at least
	timed  timed
}

func (c *Client) repeatLocked(until int64, send func() (done bool), gaveUp func()) {
	p := &repetition{client: c, send: send, gaveUp: gaveUp, until: until, began: c.now(), every: 50 * time.Millisecond}
	p.timed.fire = p.fire
	c.running++
	c.put(&p.timed, p.began.mono)
}

func (p *repetition) fire(now instant, fx *effects) {
	c := p.client
	// Shutdown is held up for a second, by what comes late in it, too. A process that stood
	// still for that second sends it all the same.
	if now.mono >= p.until || p.sent && c.shut && later(c.shutAt, p.began).add(time.Second).reached(now) {
		c.running--
		c.checkIdle()
		if p.gaveUp != nil {
			fx.then(p.gaveUp)
		}
		return
	}
	p.sent = true
	c.sched.jobs = append(c.sched.jobs, p.again)
}

func (p *repetition) again() {
	c := p.client
	done := p.send()
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if done {
		c.running--
		c.checkIdle()
		return
	}
	c.put(&p.timed, min(now.mono+int64(p.every), p.until))
	p.every = min(2*p.every, time.Second)
}

// compensateLocked takes back acquisitions whose outcome is unknown: they may have
// taken effect, or may yet. It releases what their owner holds until it has found
// them all or they can no longer matter, because what they would have got has run
// out. Owner ids are never used again (nor are those passed on of which something is on its way: pass.go), so it cannot hit another. place is how long a
// place in the queue was asked for.
func (c *Client) compensateLocked(family backend.Kind, name, owner string, place time.Duration, late int, until int64) {
	if family == backend.KindFair {
		c.leaveLineLocked(name, owner, place, late, until)
		return
	}
	c.repeatLocked(until, func() bool {
		reply, err := c.session.Release(c.base, backend.ReleaseRequest{Kind: family, Name: name, Owner: owner})
		if err != nil || !reply.Held {
			return false
		}
		late--
		(*events)(c).Released(topicOf(family, name))
		return late <= 0
	}, nil)
}
