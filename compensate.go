package mortise

import (
	"time"

	"github.com/mortise-go/mortise/backend"
)

// repetition sends something in the background, again and again, until it is done
// or can no longer matter.
type repetition struct {
	client *Client
	name   string // of the lock, which is on one node
	send   func() (done bool)
	gaveUp func() // called if it was not done in time; may be nil
	until  int64  // monotonic
	began  instant
	every  time.Duration
	most   time.Duration // what every grows to
	sent   bool          // once at least
	timed  timed
}

// repeatLocked repeats send with pauses that double up to a second, until it is done, or until a time,
// when gaveUp is called, which may be nil.
func (c *Client) repeatLocked(name string, until int64, send func() (done bool), gaveUp func()) *repetition {
	p := &repetition{client: c, name: name, send: send, gaveUp: gaveUp, until: until, began: c.now(), every: 50 * time.Millisecond, most: time.Second}
	p.timed.fire = p.fire
	c.running++
	c.put(&p.timed, p.began.mono)
	return p
}

// rarely has the pauses grow to a twentieth of the time in which there may be something to find, until
// then: the store answers. After an outage there may be thousands of such requests.
func (p *repetition) rarely(until int64) {
	p.most = max(p.most, time.Duration(until-p.began.mono)/20)
}

func (p *repetition) fire(now instant, fx *effects) {
	c := p.client
	// A process that stood still for the second that Shutdown waits sends it all the same.
	if now.mono >= p.until || p.sent && c.shut && p.last().reached(now) {
		c.running--
		c.checkIdle()
		if p.gaveUp != nil {
			fx.then(p.gaveUp)
		}
		return
	}
	p.sent = true
	c.lane(p.name).jobs.push(p.again)
}

// last is until when p holds Shutdown up: a second, also where p comes late in it.
func (p *repetition) last() instant { return later(p.client.shutAt, p.began).add(time.Second) }

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
	at := min(now.mono+int64(p.every), p.until)
	if c.shut {
		at = min(at, p.last().mono)
	}
	c.put(&p.timed, at)
	p.every = min(2*p.every, p.most)
}

// compensateLocked takes back acquisitions whose outcome is unknown, late in number: they may have
// taken effect, or may yet. It releases what their owner holds until it has found
// them all or they can no longer matter, because what they would have got has run
// out. Where late is zero, one answer is enough: a release that failed is repeated. Owner ids are never used again (nor are those
// passed on of which something is on its way: pass.go), so it cannot hit another. place is how long a
// place in the queue was asked for.
func (c *Client) compensateLocked(family backend.Kind, name, owner string, place time.Duration, late int, until int64) {
	if family == backend.KindFair {
		c.leaveLineLocked(name, owner, place, late, until)
		return
	}
	q := backend.ReleaseRequest{Kind: family, Name: name, Owner: owner, Undo: late > 0}
	var p *repetition
	p = c.repeatLocked(name, until, func() bool {
		reply, err := c.session.Release(c.base, q)
		if err != nil {
			return false
		}
		p.rarely(until)
		if reply.Held {
			late--
			(*events)(c).Released(topicOf(family, name))
		}
		return late <= 0
	}, nil)
}
