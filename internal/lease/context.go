package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/mortise-go/mortise/internal/fail"
)

// Key names a lock of a client. Context.Value takes a *Key and returns the hold or the delegation that the context
// carries for the lock. The key is a pointer because a pointer in an interface needs no allocation.
type Key struct {
	Name   string
	Client uint32 // the number of the client
	Record uint8  // the kind of record, in the engine's terms
}

// Carriers is the key for the innermost context that carries holds or delegations: a *Context, a context with
// delegations, a Joined, or an Undelegated.
type Carriers struct{}

// CarriesLock marks Key as a key for holds or delegations; Without answers such keys with nil.
func (*Key) CarriesLock() {}

// CarriesLock marks Carriers as a key for holds or delegations.
func (Carriers) CarriesLock() {}

// Without is a context that hides the holds and delegations that its parent carries.
type Without struct{ context.Context }

// Value returns nil for a key that asks for holds or delegations.
func (w Without) Value(key any) any {
	if _, asks := key.(interface{ CarriesLock() }); asks {
		return nil
	}
	return w.Context.Value(key)
}

// String distinguishes the context from its parent.
func (w Without) String() string { return fmt.Sprintf("%v.WithoutLeases", w.Context) }

// Context is the context of a lease. It carries the lease's hold.
type Context struct {
	context.Context
	cancel context.CancelCauseFunc
	Hold   *Hold
}

// Value returns the hold for the *Key of the hold's lock, and x for Carriers.
func (x *Context) Value(key any) any {
	switch k := key.(type) {
	case *Key:
		if *k == x.Hold.Tenure.Key {
			return x.Hold
		}
	case Carriers:
		return x
	}
	return x.Context.Value(key)
}

// String keeps package fmt from printing, and so reading, the fields of the hold.
func (x *Context) String() string {
	return fmt.Sprintf("%v.WithLease(%q)", x.Context, x.Hold.Tenure.Key.Name)
}

// Context returns the lease's context. The first call makes the context, so a lease whose context is not used needs
// no memory for it and is not registered with the parent.
func (h *Hold) Context() context.Context {
	if x := h.ctx.Load(); x != nil {
		return x
	}
	k := h.Tenure.Keeper
	x := &Context{Hold: h}
	k.Lock()
	cause := h.Cause
	k.Unlock()
	if cause != nil { // the hold has ended: a later end of the parent must not be the cause
		x.Context, x.cancel = context.WithCancelCause(context.WithoutCancel(h.Under))
	} else {
		x.Context, x.cancel = h.child()
	}
	k.Lock()
	cause = h.Cause
	if cause == nil && !h.ctx.CompareAndSwap(nil, x) {
		cause = fail.Released // another goroutine has made the context: discard x
	}
	k.Unlock()
	if cause != nil { // x is discarded, or the hold ended before End could find x
		x.cancel(cause)
		h.ctx.CompareAndSwap(nil, x)
	}
	return h.ctx.Load()
}

// End ends the lease's context if there is one. The caller has set h.Cause before, and does not hold the keeper's
// lock.
func (h *Hold) End(cause error) {
	if x := h.ctx.Load(); x != nil {
		x.cancel(cause)
	}
}

// child makes the context of a live hold, a child of the context given to Lock. A reader's hold that was entered under
// a writer's outlives the writer's Unlock: the reader's context then follows the context given to the writer's Lock.
func (h *Hold) child() (context.Context, context.CancelCauseFunc) {
	w := h.Outer.Writer()
	if !h.Shared() || w == nil {
		return context.WithCancelCause(h.Under)
	}
	child, end := context.WithCancelCause(context.WithoutCancel(h.Under))
	follow(child, end, h.Under, w)
	return child, end
}

// follow ends child when ctx ends. If the Unlock of w, or of a writer's hold outside w, ended ctx, child goes on and
// follows the context given to that writer's Lock.
func follow(child context.Context, end context.CancelCauseFunc, ctx context.Context, w *Hold) {
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		for ; w != nil; w = w.Outer.Writer() {
			if errors.Is(cause, fail.Released) && errors.Is(context.Cause(w.Context()), fail.Released) {
				follow(child, end, w.Under, w.Outer.Writer())
				return
			}
		}
		end(cause)
	})
	context.AfterFunc(child, func() { stop() })
}

// Undelegated answers Carriers for a context whose hold has no delegation, as those of Quorum. Context is the one
// below.
type Undelegated struct {
	Context context.Context
	Hold    interface{ Err() error } // comparable: a Joined leads to one hold twice
}

// Joined is a context with the values of two contexts. Other is asked second.
type Joined struct {
	context.Context
	Other context.Context
}

// Value returns j for Carriers: both contexts may have carriers.
func (j Joined) Value(key any) any {
	if _, all := key.(Carriers); all {
		return j
	}
	if v := j.Context.Value(key); v != nil {
		return v
	}
	return j.Other.Value(key)
}
