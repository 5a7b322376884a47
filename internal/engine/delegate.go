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

// A lock is entered from another process by an owner of its own, nested in the store under the one whose
// delegation came with the call: counts being absolute, two processes that raised one would both be in. The
// process that delegated does likewise from then on, so that a count that was delegated never rises: no later
// hold can be taken for the delegated one, and one order in the store is that of all that enter.

// Delegation says which hold of a lock a call comes from. It has the fields of mortise.Delegation, which
// documents them.
type Delegation struct {
	Name    string
	Owner   string
	Hold    int
	Token   int64
	Expires time.Time
}

// MaxDelegations is how many delegations a context gives and takes.
const MaxDelegations = 16

// maxOwner bounds an owner's id: a client's, a colon and a number.
const maxOwner = maxID + 1 + 20

// check refuses a delegation that cannot be one.
func (x Delegation) check() error {
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

// WithDelegations returns a context that carries delegations: calls of this engine with it enter under them.
func (e *Engine) WithDelegations(ctx context.Context, delegations []Delegation) (context.Context, error) {
	fails := func(name string, err error) (context.Context, error) {
		return nil, fail.New("withdelegations", name, err)
	}
	if err := e.Usable(); err != nil {
		return fails("", err)
	}
	if ctx == nil {
		return fails("", fail.NilContext)
	}
	if len(delegations) > MaxDelegations {
		return fails("", fail.Invalidf("%d delegations, the limit is %d", len(delegations), MaxDelegations))
	}
	for _, x := range delegations {
		if err := x.check(); err != nil {
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

// delegated is a context that carries delegations that a client has accepted.
type delegated struct {
	context.Context
	engine      *Engine
	delegations []Delegation
}

// Value answers the key of a lock with a delegation on it.
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

// String keeps what prints contexts from printing delegations.
func (x *delegated) String() string { return fmt.Sprintf("%v.WithDelegations", x.Context) }

// Delegations are those on the locks that ctx holds, of any engine, innermost first.
func Delegations(ctx context.Context) []Delegation {
	if ctx == nil {
		return nil
	}
	g := gathering{seen: make(map[lease.Key]bool)}
	g.from(ctx)
	return g.delegations
}

// gathering collects delegations.
type gathering struct {
	delegations []Delegation
	seen        map[lease.Key]bool
}

// from collects those of ctx, innermost first.
func (g *gathering) from(ctx context.Context) {
	for len(g.delegations) < MaxDelegations {
		switch x := ctx.Value(lease.Carriers{}).(type) {
		case *lease.Context:
			g.hold(x.Hold)
			ctx = x.Context
		case *delegated:
			for _, delegation := range x.delegations {
				key := keyOf(x.engine, lockTopic(delegation.Name))
				if len(g.delegations) < MaxDelegations && !g.seen[key] && time.Now().Before(delegation.Expires) {
					g.delegations = append(g.delegations, delegation)
				}
				g.seen[key] = true
			}
			ctx = x.Context
		case lease.Joined:
			g.from(x.Context)
			ctx = x.Other
		default:
			return
		}
	}
}

// hold collects that of a lease, if it is live.
func (g *gathering) hold(h *lease.Hold) {
	key := h.Tenure.Key
	if g.seen[key] || key.Record != uint8(backend.KindLock) {
		return
	}
	g.seen[key] = true
	if delegation, ok := delegate(h); ok {
		g.delegations = append(g.delegations, delegation)
	}
}

// delegate makes a delegation on h, if it is live and of a kind that is entered from elsewhere.
func delegate(h *lease.Hold) (Delegation, bool) {
	t := of(h)
	e := t.engine
	if key := t.Key; key.Record != uint8(backend.KindLock) || e.store.can.Delegation == nil || h.Err() != nil {
		return Delegation{}, false
	}
	e.lock()
	defer e.unlock()
	if h.Cause != nil {
		return Delegation{}, false // meanwhile
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

func delegationOf(h *lease.Hold) Delegation {
	x := Delegation{Name: h.Name(), Owner: h.Tenure.Owner, Hold: int(h.Level)}
	x.Token, _ = h.Token()
	return x
}

// Enters reports whether a call with ctx enters what it holds already of a plain lock, or under a delegation.
func (e *Engine) Enters(ctx context.Context, name string) bool {
	key := keyOf(e, lockTopic(name))
	switch x := ctx.Value(&key).(type) {
	case *lease.Hold:
		return x.Err() == nil
	case *Delegation:
		return true
	}
	return false
}

// enterAsCallee takes the lock under h, whose tenure was delegated. It reports ended if h has ended.
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
		lost := h.Cause == nil // it lives here, and the store knows of no such hold
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

// enterDelegated takes the lock under a delegation.
func (c *call) enterDelegated(x Delegation) (*lease.Handle, error) {
	if c.NonReentrant {
		return nil, c.Fail(fail.Invalidf("the call comes from a holder of this lock, and a non-reentrant lock is not " +
			"entered again; unlock it first, or use the reentrant lock"))
	}
	c.Family, c.delegation = backend.KindDelegated, &x
	shut := c.engine.Shut()
	if c.Try || shut && c.outer != nil { // those that hold it already are to finish
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
