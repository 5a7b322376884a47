package mortise

import (
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/lease"
)

// MaxParts is the most parts of a call.
const MaxParts = maxParts

// Engine returns a client's engine.
func Engine(c *Client) *engine.Engine { return c.engine }

// Held returns what implements a lease.
func Held(l *Lease) lease.Holding { return l.held() }

// LeaseOf returns the lease of a permit.
func LeaseOf(p *Permit) *Lease { return p.lease }

// Change returns the request for a change of a semaphore.
func Change(s *CountingSemaphore, n int64) backend.CountRequest { return s.count.Change(n) }
