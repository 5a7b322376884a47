package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// A call from another process enters a lock as an owner of its own, which the store keeps under the owner that gave
// out the delegation (docs/decisions/0032). It must not raise that owner's hold count: counts are absolute, so two
// processes that raised the count would both be in. Once an owner has given out a delegation, calls of its own process
// enter in the same way. So the count of a delegated owner never rises, and no later hold fits an earlier delegation.

// maxOwner bounds the length of an owner id in bytes: a client's id, a colon and a number.
const maxOwner = maxID + 1 + 20

// wellFormed returns an error for a malformed delegation.
func wellFormed(x lease.Delegation) error {
	if err := CheckName(x.Name); err != nil {
		return fmt.Errorf("%w: a delegation's name: %w", fail.Invalid, err)
	}
	switch {
	case len(x.Owner) > maxOwner, !utf8.ValidString(x.Owner), strings.ContainsFunc(x.Owner, unicode.IsControl),
		strings.IndexByte(x.Owner, ':') < 0:
		return fail.Invalidf("a delegation's owner, %q, is malformed", fail.Shorten(x.Owner))
	case x.Hold < 1:
		return fail.Invalidf("a delegation's hold is %d; 1 or more", x.Hold)
	case x.Token < 0:
		return fail.Invalidf("a delegation's token is %d", x.Token)
	}
	return nil
}

// WithDelegations returns a context with delegations, most of them at most. Calls of this engine with the context enter
// under them.
func (e *Engine) WithDelegations(
	ctx context.Context, most int, delegations []lease.Delegation,
) (context.Context, error) {
	fails := func(name string, err error) (context.Context, error) {
		return nil, fail.New("withdelegations", name, err)
	}
	if err := e.Usable(); err != nil {
		return fails("", err)
	}
	if ctx == nil {
		return fails("", fail.NilContext)
	}
	if len(delegations) > most {
		return fails("", fail.Invalidf("%d delegations, the limit is %d", len(delegations), most))
	}
	for _, x := range delegations {
		if err := wellFormed(x); err != nil {
			return fails(x.Name, err)
		}
	}
	if e.store.can.Delegation == nil {
		return fails("", fail.Invalidf("on the backend (%T) a lock that another process holds cannot be entered; "+
			"on those of redisgo, rueidis and memory it can", e.store.Store))
	}
	if len(delegations) == 0 {
		return ctx, nil
	}
	return &delegated{Context: ctx, engine: e, delegations: delegations}, nil
}

// delegated is a context with delegations that a client has accepted.
type delegated struct {
	context.Context
	engine      *Engine
	delegations []lease.Delegation
}

// Value returns the delegation for the *Key of its lock, and x for Carriers.
func (x *delegated) Value(key any) any {
	switch k := key.(type) {
	case *lease.Key:
		if k.Client == x.engine.number && k.Record == uint8(backend.KindLock) {
			for i := range x.delegations {
				if x.delegations[i].Name == k.Name {
					return &x.delegations[i]
				}
			}
		}
	case lease.Carriers:
		return x
	}
	return x.Context.Value(key)
}

// String keeps package fmt from printing the delegations.
func (x *delegated) String() string { return fmt.Sprintf("%v.WithDelegations", x.Context) }

// Delegations returns delegations for the locks that ctx holds, or was delegated, of any engine, innermost first, most
// of them at most. It also returns the number of live holds that were found to have no delegation: of read-write locks,
// permits and Quorum, for example.
func Delegations(ctx context.Context, most int) (delegations []lease.Delegation, without int) {
	if ctx == nil {
		return nil, 0
	}
	g := gathering{most: most, seen: make(map[lease.Key]bool), others: make(map[any]bool)}
	g.from(ctx)
	return g.delegations, g.without
}

// gathering collects delegations, most of them at most. seen has the locks for which the innermost live hold or
// the innermost delegation was found.
type gathering struct {
	delegations []lease.Delegation
	most        int
	without     int // live holds without a delegation
	seen        map[lease.Key]bool
	others      map[any]bool // the holds of lease.Undelegated that were found
}

// from collects the delegations of ctx, innermost first.
func (g *gathering) from(ctx context.Context) {
	for len(g.delegations) < g.most {
		switch x := ctx.Value(lease.Carriers{}).(type) {
		case *lease.Context:
			g.hold(x.Hold)
			ctx = x.Context
		case *delegated:
			for _, delegation := range x.delegations {
				key := keyOf(x.engine, lockTopic(delegation.Name))
				live := delegation.Expires.IsZero() || time.Now().Before(delegation.Expires)
				if len(g.delegations) < g.most && !g.seen[key] && live {
					g.delegations = append(g.delegations, delegation)
				}
				g.seen[key] = true
			}
			ctx = x.Context
		case lease.Undelegated:
			if !g.others[x.Hold] && x.Hold.Err() == nil {
				g.without++
			}
			g.others[x.Hold] = true
			ctx = x.Context
		case lease.Joined:
			g.from(x.Context)
			ctx = x.Other
		default:
			return
		}
	}
}

// hold collects the delegation for a hold, if the hold is live. Behind a hold that has ended, a live one of the same
// lock may follow.
func (g *gathering) hold(h *lease.Hold) {
	key := h.Tenure.Key
	if g.seen[key] {
		return
	}
	var delegation lease.Delegation
	ok := false
	if key.Record == uint8(backend.KindLock) {
		delegation, ok = delegate(h)
	}
	live := ok || h.Err() == nil
	switch {
	case ok:
		g.delegations = append(g.delegations, delegation)
	case live:
		g.without++
	}
	g.seen[key] = live
}

// delegate returns a delegation for h, and marks its tenure as delegated. It reports false if h has ended, if h cannot
// be entered from another process, or cannot safely be (trouble.mayDelegate).
func delegate(h *lease.Hold) (lease.Delegation, bool) {
	t := of(h)
	e := t.engine
	if key := t.Key; key.Record != uint8(backend.KindLock) || e.store.can.Delegation == nil || h.Err() != nil {
		return lease.Delegation{}, false
	}
	e.lock()
	defer e.unlock()
	if h.Cause != nil {
		return lease.Delegation{}, false // h ended meanwhile
	}
	if !t.trouble.mayDelegate(h) {
		return lease.Delegation{}, false
	}
	if !t.Delegated.Load() {
		t.Delegate()
		if t.Stale {
			t.troubled().repairSoon(e.Now().Mono)
			t.reschedule()
		}
	}
	ends := t.Deadline.Wall
	if until, bounded := h.Until(); bounded {
		ends = min(ends, until.Wall)
	}
	delegation := delegationOf(h)
	delegation.Expires = time.Unix(0, ends).UTC().Truncate(time.Millisecond)
	return delegation, true
}

func delegationOf(h *lease.Hold) lease.Delegation {
	x := lease.Delegation{Name: h.Name(), Owner: h.Tenure.Owner, Hold: int(h.Level)}
	x.Token, _ = h.Token()
	return x
}

// Enters reports whether a call with ctx enters the plain lock under a live hold or a delegation of ctx.
func (e *Engine) Enters(ctx context.Context, name string) bool {
	key := keyOf(e, lockTopic(name))
	switch x := ctx.Value(&key).(type) {
	case *lease.Hold:
		return x.Err() == nil
	case *lease.Delegation:
		return true
	}
	return false
}

// enterAsCallee enters the lock under h, whose tenure is delegated. It reports ended if h has ended.
func (c *call) enterAsCallee(h *lease.Hold) (got *lease.Handle, ended bool, err error) {
	e, t, family := c.engine, of(h), c.Family
	c.outer = h
	if h.Err() == nil {
		got, err = c.enterDelegated(delegationOf(h))
		if !errors.Is(err, fail.DelegationEnded) {
			return got, false, err
		}
		now := e.Now()
		e.lock()
		t.expire(now)
		lost := h.Cause == nil // h is live here, but the store has no such hold
		if lost {
			t.lose(now, noRecord)
		}
		e.unlock()
		if lost {
			return nil, false, c.Fail(t.lost(goneMeanwhile))
		}
	}
	c.outer, c.delegation, c.Family = nil, nil, family
	return nil, true, nil
}

// enterDelegated enters the lock under a delegation.
func (c *call) enterDelegated(x lease.Delegation) (*lease.Handle, error) {
	if c.NonReentrant {
		return nil, c.Fail(fail.Invalidf("the call comes from a holder of this lock, and a non-reentrant lock is not " +
			"entered again; unlock it first, or use the reentrant lock"))
	}
	c.Family, c.delegation = backend.KindDelegated, &x
	shut := c.engine.Shut()
	if c.Try || shut && c.outer != nil { // during Shutdown a holder may enter, to finish, but does not wait
		h, err := c.tryOnce()
		if shut && errors.Is(err, fail.NotAcquired) {
			err = c.Fail(fail.Closed)
		}
		return h, err
	}
	return c.queueUp()
}

func (c *call) delegationEnded() error {
	return fmt.Errorf("%w: %q no longer holds the lock by the hold of the caller; the hold was unlocked or lost, its "+
		"lease ran out, or the delegation's token was never granted", fail.DelegationEnded,
		fail.Shorten(c.delegation.Owner))
}
