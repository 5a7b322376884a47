package cas

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// proclaimed implements [backend.ProclamationStore]. The text is a part of the lock's value.
type proclaimed struct{ *session }

// holds reports whether an owner holds the lock. It returns the error of a call about an owner, if the name is of
// another kind.
func holds(n *record.Name, s *record.Step, owner string) (bool, error) {
	if err := n.Refuses(record.AnyLock); err != nil {
		return false, err
	}
	return n.Lock.Left(n.For(s, record.LockData), owner) > 0, nil
}

// Proclaim implements [backend.ProclamationStore].
func (x proclaimed) Proclaim(ctx context.Context, q backend.ProclaimRequest) (bool, error) {
	return ask(ctx, x.session, q.Name, func(n *record.Name, s *record.Step) (bool, error) {
		held, err := holds(n, s, q.Owner)
		if held {
			n.Said.Proclaim(s, q)
		}
		return held, err
	})
}

// Proclaimed implements [backend.ProclamationStore].
func (x proclaimed) Proclaimed(ctx context.Context, name string) (backend.Proclamation, error) {
	return ask(ctx, x.session, name, func(n *record.Name, s *record.Step) (p backend.Proclamation, err error) {
		held, err := holds(n, s, n.Said.Owner)
		if held && n.Said.Text != "" {
			left := n.Lock.Left(s, n.Said.Owner)
			p = backend.Proclamation{Owner: n.Said.Owner, Token: n.Said.Token, Text: n.Said.Text, Remaining: left}
		}
		return p, err
	})
}

// ticks implements [backend.TickStore]. A schedule has a value of its own.
type ticks struct{ *session }

// ClaimTick implements [backend.TickStore].
func (x ticks) ClaimTick(ctx context.Context, q backend.TickRequest) (backend.TickReply, error) {
	name := "mortise:1:tick:{" + q.Name + "}"
	return ask(ctx, x.session, name, func(n *record.Name, s *record.Step) (backend.TickReply, error) {
		return n.Tick.Claim(s, q, s.Now.Milliseconds()), nil
	})
}

// checks implements [backend.CheckStore].
type checks struct{ *session }

// Checker may be implemented by a [Driver] that knows what is wrong with its store.
type Checker interface {
	// Check is [backend.CheckStore].Check, without the prefix.
	Check(ctx context.Context) ([]backend.Finding, error)
}

// Check implements [backend.CheckStore].
func (x checks) Check(ctx context.Context, _ string) ([]backend.Finding, error) {
	if d, can := x.driver.(Checker); can {
		return d.Check(ctx)
	}
	if err := x.Ping(ctx); err != nil {
		return nil, err
	}
	return []backend.Finding{{Name: "server", State: backend.FindingOK, Text: "the store answers"}}, nil
}
