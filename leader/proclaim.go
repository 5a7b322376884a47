package leader

import (
	"context"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/bridge"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// The way to the engine of a client, and of a lease.
var (
	engineOf  = bridge.Engine.(func(*mortise.Client) *engine.Engine)
	holdingOf = bridge.Holding.(func(*mortise.Lease) lease.Holding)
)

// Proclaim stores a text of a lock's owner, for example its address, for processes that do not hold the lock: [Observe]
// yields the text as the leader's identity, and its changes. [Run] proclaims its [Identity]; Proclaim is for a lock
// that is held without Run. The text has 1 to 256 bytes of UTF-8 without control characters. The next Proclaim replaces
// the text, even if its request arrives first; an empty text removes it, and the text is gone when the lease ends:
// Unlock of the outermost lease removes the text, with a command of its own. The store keeps a text for an hour:
// proclaim again within this time if the lease may last longer. [mortise.WithHoldWarning] does not apply to a lease
// that has proclaimed a text.
//
// Errors: [mortise.ErrLost] or [mortise.ErrReleased] if the lease has ended, [mortise.ErrUnavailable],
// [mortise.ErrClosed], ctx's own; [mortise.ErrInvalid] for a nil lease, for a text that is not allowed, for a lease of
// [mortise.Client.LockAll], quorum.New, [mortise.Client.RW] or a delegation, and with a backend without proclamations.
// A lease made by [mortise.NewLease] ignores Proclaim.
//
// Cost: one command.
func Proclaim(ctx context.Context, l *mortise.Lease, text string) error {
	h := holdingOf(l)
	if h == nil {
		return fail.New("proclaim", "", fail.NilLease)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	switch h := h.(type) {
	case *lease.Hold:
		return engine.Proclaim(ctx, h, text)
	case *lease.StandIn:
		return nil
	}
	return fail.New("proclaim", h.Name(), fail.Invalidf("a lease of several locks has no single owner"))
}
