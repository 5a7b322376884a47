package record

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// A session of a store is built from this package's components over what the store does around a step: see [Over] and
// [Within]. A request is one step of its name.

// Call is a request's step of a name.
type Call struct {
	Name string
	// Lenient: of a value that is no name, the call sees an empty name; otherwise it fails.
	Lenient bool
	// Run is the step. It may be called again: what it did before has then not happened.
	Run func(*Name, *Step) error
	// Then, if it is not nil, is called with the call's outcome before the call is answered.
	Then func(error)
	// Err is what came of the call.
	Err error
}

// Asker carries out calls, all at once, for a session whose store is elsewhere.
type Asker interface {
	Ask(context.Context, ...*Call)
}

// Holder has the names itself, for a session in the same process. Begin and End are called between Lock and Unlock, one
// step after the other.
type Holder interface {
	// Lock fails if the session cannot be served. It is then not locked.
	Lock(context.Context) error
	Unlock()
	// Begin begins a step; End keeps what the step has left, and sends its notices.
	Begin(name string) (*Name, *Step)
	End(*Name, *Step)
}

// session is what all components of a session have in common. Either holder or asker is nil.
type session struct {
	holder Holder
	asker  Asker
	known  *Known
}

// target is what a session's request is about: a part of a name, the data that it is, and the kind, as in
// [Name.Refuses].
type target[T any] struct {
	by   *session
	kind backend.Kind
	name string
	data Data
	of   func(*Name) *T
}

func ofName(by *session, k backend.Kind, name string) target[Name] {
	return target[Name]{by, k, name, LockData, func(n *Name) *Name { return n }}
}

func ofLock(by *session, k backend.Kind, name string) target[Lock] {
	return target[Lock]{by, k, name, LockData, func(n *Name) *Lock { return &n.Lock }}
}

func ofSides(by *session, k backend.Kind, name string) target[Sides] {
	return target[Sides]{by, k, name, SidesData, func(n *Name) *Sides { return &n.Sides }}
}

func ofPermits(by *session, k backend.Kind, name string) target[Permits] {
	return target[Permits]{by, k, name, CountData, func(n *Name) *Permits { return &n.Permits }}
}

// none is a request, or a reply, without anything to it.
type none struct{}

// on sends a request.
func on[T, Q, R any](ctx context.Context, at target[T], q Q, run func(*T, *Step, Q) R) (r R, err error) {
	x := at.by
	if x.holder == nil {
		return asked(ctx, at, q, run)
	}
	if err = x.holder.Lock(ctx); err != nil {
		return r, err
	}
	defer x.holder.Unlock()
	n, s := x.holder.Begin(at.name)
	r, err = apply(n, s, at, q, run)
	x.holder.End(n, s)
	return r, err
}

// asked is on for a store that is elsewhere.
func asked[T, Q, R any](ctx context.Context, at target[T], q Q, run func(*T, *Step, Q) R) (R, error) {
	var reply, none R
	c := &Call{Name: at.name, Lenient: at.kind == AnyData, Run: func(n *Name, s *Step) (err error) {
		reply, err = apply(n, s, at, q, run)
		return err
	}}
	if at.by.asker.Ask(ctx, c); c.Err != nil {
		return none, c.Err
	}
	return reply, nil
}

// apply runs the step of a request. One about a hold (AnyLock) has its step also if it fails: the owner does not hold
// this kind of lock.
func apply[T, Q, R any](n *Name, s *Step, at target[T], q Q, run func(*T, *Step, Q) R) (r R, err error) {
	if err = n.Refuses(at.kind); err != nil && at.kind != AnyLock {
		return r, err
	}
	reply := run(at.of(n), n.For(s, at.data), q)
	if err != nil {
		return r, err
	}
	return reply, nil
}

// renew sends renewals, all at once. Other data counts as not held.
func renew[T any](ctx context.Context, at target[T], in []backend.RenewRequest, out []backend.RenewResult,
	run func(*T, *Step, backend.RenewRequest) backend.RenewResult) {
	x := at.by
	if x.holder == nil {
		renewElsewhere(ctx, at, in, out, run)
		return
	}
	err := x.holder.Lock(ctx)
	for i, q := range in {
		if out[i] = (backend.RenewResult{Err: err}); err == nil {
			n, s := x.holder.Begin(q.Name)
			out[i] = run(at.of(n), n.For(s, at.data), q)
			x.holder.End(n, s)
		}
	}
	if err == nil {
		x.holder.Unlock()
	}
}

func renewElsewhere[T any](ctx context.Context, at target[T], in []backend.RenewRequest, out []backend.RenewResult,
	run func(*T, *Step, backend.RenewRequest) backend.RenewResult) {
	replies, calls := make([]backend.RenewResult, len(in)), make([]*Call, len(in))
	for i, q := range in {
		calls[i] = &Call{Name: q.Name, Lenient: true, Run: func(n *Name, s *Step) error {
			replies[i] = run(at.of(n), n.For(s, at.data), q)
			return nil
		}}
	}
	at.by.asker.Ask(ctx, calls...)
	for i, c := range calls {
		if out[i] = (backend.RenewResult{Err: c.Err}); c.Err == nil {
			out[i] = replies[i]
		}
	}
}
