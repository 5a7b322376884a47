package mortise

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise/backend"
)

// holdKey is what a lease's context is asked for its hold by: with a pointer to it, which
// costs no memory.
type holdKey struct {
	client *Client
	topic  backend.Topic
}

// leaseContext is the context of a lease. It carries the lease's hold.
type leaseContext struct {
	context.Context
	cancel context.CancelCauseFunc
	key    holdKey
	hold   *hold
}

func (x *leaseContext) Value(key any) any {
	switch k := key.(type) {
	case *holdKey:
		if *k == x.key {
			return x.hold
		}
	case claimsKey:
		return x
	}
	return x.Context.Value(key)
}

// String keeps what prints contexts from looking into the hold.
func (x *leaseContext) String() string {
	return fmt.Sprintf("%v.WithLease(%q)", x.Context, x.key.topic.Name)
}

// context makes the lease's context when it is first asked for. Many leases' are not, and they
// cost neither the memory nor a place among their parent's children.
func (h *hold) context() context.Context {
	if x := h.ctx.Load(); x != nil {
		return x
	}
	c := h.owner.client
	x := &leaseContext{key: holdKey{c, topicOf(h.owner.family, h.name())}, hold: h}
	c.mu.Lock()
	cause := h.cause
	c.mu.Unlock()
	if cause != nil { // its parent may have ended afterwards: that is not what ended it
		x.Context, x.cancel = context.WithCancelCause(context.WithoutCancel(h.under))
	} else if h.family == backend.KindRead && h.outer != nil {
		x.Context, x.cancel = outliving(h.under, h.outer)
	} else {
		x.Context, x.cancel = context.WithCancelCause(h.under)
	}
	c.mu.Lock()
	cause = h.cause
	if cause == nil && !h.ctx.CompareAndSwap(nil, x) {
		cause = ErrReleased // another goroutine has made one
	}
	c.mu.Unlock()
	if cause != nil { // whoever ended the hold had no context to end
		x.cancel(cause)
		h.ctx.CompareAndSwap(nil, x)
	}
	return h.ctx.Load()
}

// end ends the lease's context, after its cause was set and without the mutex.
func (h *hold) end(cause error) {
	if x := h.ctx.Load(); x != nil {
		x.cancel(cause)
	}
}
