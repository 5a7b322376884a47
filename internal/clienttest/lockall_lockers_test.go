package clienttest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

// fake is a Locker with leases of its own, under a context of its own where loose is set.
type fake struct {
	loose    bool
	lose     context.CancelCauseFunc
	unlocked int
	failure  error
	refusals int
	under    error // of the context that Unlock was given
}

func (f *fake) Lock(ctx context.Context, name string, _ ...Option) (*Lease, error) {
	if f.loose {
		ctx = context.WithValue(context.Background(), fakeKey{}, name)
	}
	ctx, f.lose = context.WithCancelCause(ctx)
	return NewLease(ctx, name, 0, func(ctx context.Context) error {
		f.unlocked++
		f.under = ctx.Err()
		return f.failure
	}), nil
}

func (f *fake) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	if f.refusals > 0 {
		f.refusals--
		return nil, &Error{Op: "trylock", Name: name, Err: ErrNotAcquired}
	}
	return f.Lock(ctx, name, opts...)
}

type fakeKey struct{}

func TestLockAllOfOtherLockers(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		ctx := t.Context()
		for _, loose := range []bool{false, true} {
			for _, order := range []string{"first", "last"} {
				f := &fake{loose: loose, failure: errors.New("no release")}
				p := Parts{}.And(c, "x", "y").And(f, "f")
				if order == "first" {
					p = Parts{}.And(f, "f").And(c, "y", "x")
				}
				all := need(p.Lock(ctx))(t)
				// The context carries all leases, wherever the context of the other Locker comes from.
				if v := all.Context().Value(fakeKey{}); loose && v != "f" {
					t.Errorf("the context carries %v", v)
				}
				for _, n := range []string{"x", "y"} {
					must(t, thenUnlock(c.TryLock(all.Context(), n)))
				}
				if err := all.Unlock(ctx); err == nil || !errors.Is(err, f.failure) || f.unlocked != 1 {
					t.Errorf("Unlock: %v, %d times", err, f.unlocked)
				}
				if all.Context().Err() == nil {
					t.Error("the context goes on after Unlock")
				}
				x := need(c.LockAll(ctx, []string{"x", "y"}))(t)
				must(t, x.Unlock(ctx))

				// The lease ends when either part ends.
				for _, mine := range []bool{true, false} {
					f.failure = nil
					all = need(p.Lock(ctx))(t)
					if mine {
						s.Delete("y")
					} else {
						f.lose(fmt.Errorf("%w: for a test", ErrLost))
					}
					<-all.Context().Done()
					wants(t, context.Cause(all.Context()), ErrLost)
					wants(t, all.Err(), ErrLost)
					wants(t, all.Unlock(ctx), ErrLost)
				}
			}
		}
		// A refusal releases what was acquired; LockAll then begins with the part that refused.
		f := &fake{refusals: 1}
		all := need(Parts{}.And(c, "x", "y").And(f, "f").Lock(ctx))(t)
		must(t, all.Unlock(ctx))
		// A part is released though the caller has left.
		f = &fake{}
		held := need(c.Lock(ctx, "y"))(t)
		gone, cancel := context.WithCancel(ctx)
		left := hook{c, cancel}
		if _, err := (Parts{}).And(f, "f").And(left, "y").Lock(gone); err == nil {
			t.Error("granted what is held")
		}
		if f.unlocked != 1 || f.under != nil {
			t.Errorf("unlocked %d times, under a context with %v", f.unlocked, f.under)
		}
		must(t, held.Unlock(ctx))
	})
}

// hook calls a function before it tries.
type hook struct {
	Locker
	before func()
}

func (h hook) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	h.before()
	return h.Locker.TryLock(ctx, name, opts...)
}
