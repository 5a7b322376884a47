package mortise

import (
	"time"

	"github.com/mortise-go/mortise/backend"
)

// nests tells whether the store has locks that several owners hold, each under another.
func (c *Client) nests() bool {
	s, is := c.session.(backend.NestSession)
	return is && s.Nests()
}

// lend makes a claim on h, if it is live and of a kind that is entered from elsewhere.
func (h *hold) lend() (Claim, bool) {
	o := h.owner
	c := o.client
	if !o.nestable() || !c.nests() || h.err() != nil {
		return Claim{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, x := range o.holds {
		if x != h {
			continue
		}
		o.lent = true
		ends := o.deadline.wall
		if h.bounded {
			ends = min(ends, h.until.wall)
		}
		claim := Claim{Name: h.lease.name, Owner: o.id, Hold: i + 1, Expires: time.Unix(0, ends).UTC().Truncate(time.Millisecond)}
		if h.lease.fenced {
			claim.Token = h.lease.token
		}
		return claim, true
	}
	return Claim{}, false // ended meanwhile
}

// nestable tells an owner whose record is the reentrant lock's.
func (o *owner) nestable() bool {
	switch o.family {
	case backend.KindLock, backend.KindFair, backend.KindNested:
		return true
	}
	return false
}
