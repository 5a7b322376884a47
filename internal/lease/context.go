package lease

import (
	"context"
	"errors"
	"fmt"

	"github.com/mortise-go/mortise/internal/fail"
)

// Key is what a lease's context is asked for its hold by: with a pointer to it, which costs no memory.
type Key struct {
	Name   string
	Client uint32 // whose lease it is
	Record uint8  // the kind of record, in the client's terms
}

// Carriers asks a context for the innermost of those that carry a way into a lock: a *Context, a context of
// delegations, or joined ones.
type Carriers struct{}

// CarriesLock marks what a context is asked for a way into a lock by: see Without.
func (*Key) CarriesLock() {}

// CarriesLock: as that of Key.
func (Carriers) CarriesLock() {}

// Without is a context that carries no way into a lock, though its parent may.
type Without struct{ context.Context }

// Value answers nothing to what asks for a way into a lock.
func (w Without) Value(key any) any {
	if _, asks := key.(interface{ CarriesLock() }); asks {
		return nil
	}
	return w.Context.Value(key)
}

// String tells it from its parent.
func (w Without) String() string { return fmt.Sprintf("%v.WithoutLeases", w.Context) }

// Context is the context of a lease. It carries the lease's hold.
type Context struct {
	context.Context
	cancel context.CancelCauseFunc
	Hold   *Hold
}

// Value answers a *Key with the hold, and Carriers with itself.
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

// String keeps what prints contexts from looking into the hold.
func (x *Context) String() string {
	return fmt.Sprintf("%v.WithLease(%q)", x.Context, x.Hold.Tenure.Key.Name)
}

// Context makes the lease's context when it is first asked for. Many leases' are not, and they cost neither the
// memory nor a place among their parent's children.
func (h *Hold) Context() context.Context {
	if x := h.ctx.Load(); x != nil {
		return x
	}
	k := h.Tenure.Keeper
	x := &Context{Hold: h}
	k.Lock()
	cause := h.Cause
	k.Unlock()
	if cause != nil { // its parent may have ended afterwards: that is not what ended it
		x.Context, x.cancel = context.WithCancelCause(context.WithoutCancel(h.Under))
	} else {
		x.Context, x.cancel = h.child()
	}
	k.Lock()
	cause = h.Cause
	if cause == nil && !h.ctx.CompareAndSwap(nil, x) {
		cause = fail.Released // another goroutine has made one
	}
	k.Unlock()
	if cause != nil { // the end of the hold found no context to end
		x.cancel(cause)
		h.ctx.CompareAndSwap(nil, x)
	}
	return h.ctx.Load()
}

// End ends the lease's context, after its cause was set and without the lock.
func (h *Hold) End(cause error) {
	if x := h.ctx.Load(); x != nil {
		x.cancel(cause)
	}
}

// child makes the context of a live hold. If a writer's hold is above a reader's, the context that it comes from ends
// when the writer unlocks, and the reader's does not: it goes on with the context that the writer's Lock was given.
func (h *Hold) child() (context.Context, context.CancelCauseFunc) {
	w := h.Outer.Writer()
	if !h.Shared() || w == nil {
		return context.WithCancelCause(h.Under)
	}
	child, end := context.WithCancelCause(context.WithoutCancel(h.Under))
	follow(child, end, h.Under, w)
	return child, end
}

// follow ends child when ctx ends, but for the Unlock of w or of a writer's hold above it.
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

// Joined is a context that carries what another carries, too.
type Joined struct {
	context.Context
	Other context.Context
}

// Value answers Carriers with itself.
func (j Joined) Value(key any) any {
	if _, all := key.(Carriers); all {
		return j
	}
	if v := j.Context.Value(key); v != nil {
		return v
	}
	return j.Other.Value(key)
}
