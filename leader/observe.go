package leader

import (
	"context"
	"iter"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Leader is the leading process, and zero if there is none. Leaders are comparable.
type Leader struct {
	// Identity is the leader's name: [Identity], or the text of [Proclaim].
	Identity string
	// Client is the leader's client: [mortise.Client.ID].
	Client string
	// Term is the number of the leader's term, [Term.Token]: data from a leader with a smaller
	// number are out of date. Zero without a fencing token.
	Term int64
}

// Observe yields the present leader, the zero Leader if there is none, and then each change, until
// ctx ends or the loop does:
//
//	for l, err := range leader.Observe(ctx, client, "scheduler") {
//		switch {
//		case err != nil: // the store is unavailable: the leader is not known
//		case l == leader.Leader{}: // no leader now
//		default: // l.Identity leads
//		}
//	}
//
// There is no leader if the lock of the name is free, or if its owner has no text ([Proclaim]). The store announces a
// change as it happens: a resignation and an election are reported at once, the death of a leader when its lease is
// over. Of changes that are quicker than the loop some may be left out, but never the latest. A reported leader may be
// outdated on arrival.
//
// An error comes in place of a leader. After an error that wraps [mortise.ErrUnavailable] the loop goes on: it tries
// again within a second, and yields the leader again once the store answers. Other errors end the loop:
// [mortise.ErrClosed], [mortise.ErrInvalidName], [mortise.ErrWrongKind]; [mortise.ErrInvalid] for a nil client, and
// with a backend without proclamations.
//
// Cost: a subscription, three commands at the beginning, two for each change, and another when the leader's lease would
// have ended without a renewal, after two thirds of the watchdog timeout or more; without a leader about each 5 s. A
// client's loops for a name share the subscription and this command.
func Observe(ctx context.Context, c *mortise.Client, name string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if ctx == nil {
			yield(Leader{}, fail.New("observe", name, fail.NilContext))
			return
		}
		e := engineOf(c)
		all := counters.NewProclamations(e, engine.FullName(e, name))
		for p, err := range all.All(ctx) {
			if !yield(Leader{p.Text, engine.ClientOf(p.Owner), p.Token}, err) {
				return
			}
		}
	}
}

// Current returns the present leader, the zero Leader if there is none. Errors are those of
// Observe, and ctx's own. Current costs one command.
func Current(ctx context.Context, c *mortise.Client, name string) (Leader, error) {
	for l, err := range Observe(ctx, c, name) {
		return l, err
	}
	return Leader{}, fail.New("current", name, fail.Gone(ctx))
}
