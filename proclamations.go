package mortise

import (
	"context"
	"iter"

	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Proclamation is what the owner of a lock says of itself: see [Lease.Proclaim]. It is zero where
// the lock is free, or its owner has said nothing. Proclamations are comparable.
type Proclamation struct {
	// Text is what it says.
	Text string
	// Client is the owner's client: [Client.ID].
	Client string
	// Token is the owner's fencing token; zero if it has none.
	Token int64
}

// Proclamations gives the proclamation of a lock's owner as it is now, the zero Proclamation if
// there is none, and then each one that differs from the one before, until ctx ends or the loop
// does:
//
//	for p, err := range client.Proclamations(ctx, "scheduler") { ... }
//
// A change is told by the store as it happens. The end of the lease of an owner that died is
// noticed when the lease is over. Changes that follow each other more quickly than the loop may be
// left out; the latest one never is.
//
// An error comes in place of a proclamation. After one that wraps [ErrUnavailable] the loop goes
// on: it tries again within a second, and gives the proclamation again once the store answers.
// Others end it: [ErrClosed], [ErrInvalidName], [ErrWrongKind];
// [ErrInvalid] with a backend that keeps no texts.
//
// Cost: a subscription, three commands at the beginning, two for each change, and one each time
// that the owner's lease would be over if it were not renewed: one in two thirds of the watchdog
// timeout, or more. Loops of one client for one name share the subscription and the latter
// commands.
func (c *Client) Proclamations(ctx context.Context, name string) iter.Seq2[Proclamation, error] {
	return func(yield func(Proclamation, error) bool) {
		if ctx == nil {
			yield(Proclamation{}, fail.New("proclamations", name, fail.NilContext))
			return
		}
		all := counters.NewProclamations(c.inner(), name)
		for p, err := range all.All(ctx) {
			if !yield(Proclamation{p.Text, engine.ClientOf(p.Owner), p.Token}, err) {
				return
			}
		}
	}
}
