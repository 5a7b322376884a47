package mortise

import (
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/lease"
)

// MaxParts is the most parts of a call.
const MaxParts = maxParts

// Engine returns a client's engine.
func Engine(c *Client) *engine.Engine { return c.engine }

// Held returns what implements a lease.
func Held(l *Lease) lease.Holding { return l.held() }
