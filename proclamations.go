package mortise

import (
	"context"
	"iter"

	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Proclamation is the text of a lock's owner: see [Lease.Proclaim]. It is zero if the lock is free, or
// if its owner has no text. Proclamations are comparable.
type Proclamation struct {
	// Text is the owner's text.
	Text string
	// Client is the owner's client: [Client.ID].
	Client string
	// Token is the owner's fencing token; zero if there is none.
	Token int64
}

// Proclamations yields the present proclamation of a lock's owner, and then each one that differs from
// the last, until ctx ends or the loop does:
//
//	for p, err := range client.Proclamations(ctx, "scheduler") { ... }
//
// The store announces a change as it happens. If the owner dies, the change comes when its lease ends.
// Of changes that are quicker than the loop some may be left out, but never the latest.
//
// An error comes in place of a proclamation. After an error that wraps [ErrUnavailable] the loop
// goes on: it tries again within a second, and yields the proclamation again once the store
// answers. Other errors end the loop: [ErrClosed], [ErrInvalidName], [ErrWrongKind]; [ErrInvalid]
// with a backend without proclamations.
//
// Cost: a subscription, three commands at the beginning, two for each change, and another when the
// owner's lease would have ended without a renewal, after two thirds of the watchdog timeout or more;
// without a text about each 5 s. A client's loops for a name share the subscription and this command.
func (c *Client) Proclamations(ctx context.Context, name string) iter.Seq2[Proclamation, error] {
	return func(yield func(Proclamation, error) bool) {
		if ctx == nil {
			yield(Proclamation{}, fail.New("proclamations", name, fail.NilContext))
			return
		}
		all := counters.NewProclamations(c.inner(), engine.FullName(c.inner(), name))
		for p, err := range all.All(ctx) {
			if !yield(Proclamation{p.Text, engine.ClientOf(p.Owner), p.Token}, err) {
				return
			}
		}
	}
}
