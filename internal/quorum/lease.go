package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Lease is the lease of a quorum: it lives while a majority of its parts does.
type Lease struct {
	lease.Facts
	call
	end   context.CancelCauseFunc
	heals bool      // the watchdog renews the lease: lost parts are locked again
	until time.Time // the end of WithMaxHold; zero without it

	mu       sync.Mutex
	parts    []part   // by index of the store
	inner    []*Lease // live leases that were entered under this one, and follow it
	cause    error
	unlocked bool
}

// part is the lock in one store, guarded by Lease.mu.
type part struct {
	lease   *lease.Handle // nil if the store's lock is not held
	counts  time.Time     // when the part may count at the earliest; zero if it counts
	why     error         // the last failure or loss; nil while held
	healing bool          // a request that locks the store again is planned or on its way
	tries   int           // the number of requests since the store last held the lock for a third of the watchdog timeout
	timer   *time.Timer   // for the planned request, or for counts; nil if the request began at once
}

// unplan takes a planned request back. It reports false if there is none, or it is on its way.
func (p *part) unplan() bool { return p.healing && p.timer != nil && p.timer.Stop() }

func (r *call) lease(votes []vote, start time.Time) *lease.Handle {
	lctx, end := context.WithCancelCause(r.ctx)
	x := &Lease{call: *r, end: end, heals: r.Lease == 0, parts: make([]part, len(votes))}
	if r.MaxHold > 0 {
		x.until = start.Add(r.MaxHold)
	}
	x.Facts = lease.Facts{Of: r.Name, Ctx: leaseContext{lctx, x}}
	if o := x.outer; o != nil {
		o.mu.Lock()
		o.inner = append(o.inner, x)
		o.mu.Unlock()
	}
	x.mu.Lock() // partEnded may be called from here on
	for i, v := range votes {
		switch {
		case v.lease != nil:
			x.joinLocked(v)
		case errors.Is(v.err, fail.NotAcquired):
			x.parts[i].tries = 1
			x.healLocked(i, x.third(i))
		default:
			x.parts[i].why, x.parts[i].tries = v.err, 1
			x.healLocked(i, x.third(i)/10)
		}
	}
	x.mu.Unlock()
	return lease.NewHandle(x)
}

// key is the key under which a lease's context carries it.
type key struct{ name string }

// CarriesLock marks the key for lease.Without.
func (key) CarriesLock() {}

// leaseContext carries the holds of all parts, so that a Lock with it re-enters in each store.
type leaseContext struct {
	context.Context
	lease *Lease
}

// Value returns the hold of a store's part for the *lease.Key of that store's client.
func (c leaseContext) Value(k any) any {
	x := c.lease
	switch k := k.(type) {
	case key:
		if k.name == x.Of {
			return x
		}
	case *lease.Key:
		if h, found := x.part(k); found {
			return h
		}
	case lease.Carriers:
		return lease.Undelegated{Context: c.Context, Hold: x}
	}
	return c.Context.Value(k)
}

// part returns the hold of the store that k is about; found is false if no part is held. If the lease has ended without
// the part, part returns nil and true: neither the lease nor an outer one can be entered through it.
func (x *Lease) part(k *lease.Key) (h any, found bool) {
	if k.Record != uint8(backend.KindLock) || k.Name != x.Of {
		return nil, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	i := slices.IndexFunc(x.nodes, func(n Node) bool { return k.Client == n.Number() })
	if i >= 0 && x.parts[i].lease != nil {
		return x.parts[i].lease.Holding(), true
	}
	return nil, i >= 0 && x.cause != nil
}

// has reports whether a store's part is held, and when it may count at the earliest; zero if it counts.
func (x *Lease) has(node int) (counts time.Time, has bool) {
	x.mu.Lock()
	p := x.parts[node]
	x.mu.Unlock()
	return p.counts, p.lease != nil && p.lease.Holding().Err() == nil
}

func (x *Lease) joinLocked(v vote) {
	p := &x.parts[v.node]
	p.lease, p.counts, p.why = v.lease, v.counts, nil
	if !p.counts.IsZero() {
		p.timer = time.AfterFunc(time.Until(p.counts), func() { _ = x.Err() })
	}
	context.AfterFunc(v.lease.Holding().Context(), func() { x.partEnded(v.node, v.lease) })
	for _, in := range x.inner {
		go in.follow(v.node)
	}
}

// partEnded notes that a store's part has ended, and has the store locked again.
func (x *Lease) partEnded(node int, l *lease.Handle) {
	if x.Err() != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := &x.parts[node]; p.lease == l {
		h := l.Holding().(*lease.Hold)
		p.lease, p.why = nil, h.Err()
		if h.Since.Add(x.third(node)).Reached(x.nodes[node].Now()) {
			p.tries = 0
		}
		x.retryLocked(node)
	}
}

// third returns a third of the watchdog timeout of a store's client.
func (x *Lease) third(node int) time.Duration { return x.nodes[node].Watchdog() / 3 }

// retryLocked plans to lock a store again: at once for the first time, and then after growing pauses, up to a third of
// the watchdog timeout.
func (x *Lease) retryLocked(node int) {
	p, after := &x.parts[node], time.Duration(0)
	if third := x.third(node); p.tries > 0 {
		after = min(third/10<<min(p.tries, 10), third)
	}
	p.tries++
	x.healLocked(node, after)
}

// healLocked plans to lock a store again after a time.
func (x *Lease) healLocked(node int, after time.Duration) {
	p := &x.parts[node]
	if !x.heals || p.healing || x.cause != nil || x.unlocked {
		return
	}
	p.healing = true
	if after == 0 { // no timer: in a synctest bubble of Go 1.26, two of them at the same time crash the race detector
		p.timer = nil
		go x.heal(node)
		return
	}
	p.timer = time.AfterFunc(after, func() { x.heal(node) })
}

// follow locks a store now if x plans to lock it later: the outer lease holds the store now, or has ended.
func (x *Lease) follow(node int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := &x.parts[node]
	if p.lease == nil && p.unplan() {
		p.healing = false
		x.healLocked(node, 0)
	}
}

// within returns the innermost live lease that x was entered under, or nil, and the context to lock with under it.
func (x *Lease) within() (*Lease, context.Context) {
	var live *Lease
	root := x
	for root.outer != nil {
		if root = root.outer; live == nil && root.Err() == nil {
			live = root
		}
	}
	if live == nil {
		return nil, root.parent
	}
	return live, leaseContext{root.parent, live}
}

// heal locks a store again. No call waits for it: a panic of the observer ends the process, as one of Renewed and Lost.
func (x *Lease) heal(node int) {
	if x.Err() != nil {
		return
	}
	c := x.call
	c.outer, c.parent = x.within()
	if o := c.outer; o != nil {
		if _, has := o.has(node); !has {
			x.mu.Lock()
			x.parts[node].healing = false
			x.healLocked(node, x.third(node))
			x.mu.Unlock()
			if _, has := o.has(node); has || o.Err() != nil { // o changed meanwhile, and does not call follow again
				x.follow(node)
			}
			return
		}
	}
	if !x.until.IsZero() { // MaxHold counts from the acquisition of the whole lease
		if c.MaxHold = time.Until(x.until); c.MaxHold < engine.MinLease {
			return
		}
	}
	bound, cancel := context.WithTimeout(context.Background(), x.patience)
	defer cancel()
	v := c.ask(bound, node, true)
	if errors.Is(v.err, fail.Barred) {
		// The store has no vote, but its lock keeps other owners out. It counts after countsAfter.
		v.lease, v.err = x.nodes[node].Acquire(c.parent, bound, c.question(true))
		v.counts = time.Now().Add(countsAfter)
	}
	if fail.IsGone(v.err) {
		v.err = x.silent(node, x.patience)
	}
	x.standing[node].heard(v)
	over := x.Err() != nil

	x.mu.Lock()
	p := &x.parts[node]
	p.healing = false
	if over = over || x.unlocked || x.cause != nil; !over { // drop or Unlock has read the parts already
		if v.err == nil {
			x.joinLocked(v)
		} else if !errors.Is(v.err, fail.Closed) {
			x.retryLocked(node)
		}
	}
	x.mu.Unlock()
	if over && v.lease != nil {
		_ = v.lease.Holding().Unlock(context.Background())
	}
}

// Err returns nil while a majority of the parts is held, and then the cause of the lease's end.
func (x *Lease) Err() error {
	x.mu.Lock()
	if x.cause != nil {
		defer x.mu.Unlock()
		return x.cause
	}
	parts := slices.Clone(x.parts)
	x.mu.Unlock()
	live, young := 0, 0
	var why fail.List
	now := time.Now()
	for i, p := range parts {
		err := p.why
		if p.lease != nil {
			err = p.lease.Holding().Err()
		}
		switch {
		case err != nil:
			why = append(why, fmt.Errorf("store %d: %w", i, fail.Bare(x.Of, err)))
		case p.lease == nil:
		case !p.counts.IsZero():
			young++
		default:
			live++
		}
	}
	if live >= x.majority {
		if young > 0 {
			x.admit(parts, now)
		}
		return nil
	}
	cause := fmt.Errorf("%w: %d of %d stores still hold the lock, %d are needed", fail.Lost, live, len(parts), x.majority)
	if young > 0 {
		cause = fmt.Errorf("%w; %d stores without their data do not count yet", cause, young)
	}
	if len(why) > 0 {
		cause = fmt.Errorf("%w: %w", cause, why)
	}
	return x.finish(fail.New("lease", x.Of, cause))
}

// admit lets those of parts count whose time has come. The caller has checked that the lease lives without them: they
// must not revive a lease that ended unnoticed while this process stood still.
func (x *Lease) admit(parts []part, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, was := range parts {
		if p := &x.parts[i]; p.lease == was.lease && !now.Before(was.counts) {
			p.counts = time.Time{}
		}
	}
}

// finish ends the lease, once, and returns why it ended.
func (x *Lease) finish(cause error) error {
	x.mu.Lock()
	if x.cause != nil {
		defer x.mu.Unlock()
		return x.cause
	}
	x.cause = cause
	for _, p := range x.parts {
		if p.timer != nil {
			p.timer.Stop()
		}
	}
	parts, inner := slices.Clone(x.parts), slices.Clone(x.inner)
	x.mu.Unlock()
	x.end(cause)
	if errors.Is(cause, fail.Lost) {
		// The holder was told of the loss. The parts that are left, a minority, would keep other owners out until its
		// Unlock.
		go drop(parts)
	}
	for o := x.outer; o != nil; o = o.outer {
		o.mu.Lock()
		o.inner = slices.DeleteFunc(o.inner, func(in *Lease) bool { return in == x })
		if o == x.outer {
			o.inner = append(o.inner, inner...) // they follow x.outer now
		}
		o.mu.Unlock()
	}
	for _, in := range inner {
		for node := range x.parts {
			in.follow(node)
		}
	}
	return cause
}

// drop releases the parts of a lost lease that are still held.
func drop(parts []part) {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range parts {
		if p.lease != nil && p.lease.Holding().Err() == nil {
			_ = p.lease.Holding().Unlock(over) // the release is sent though the context has ended
		}
	}
}

// Leaves implements lease.Leaver.
func (x *Lease) Leaves() {}

// Unlock releases all parts. If the release of a part panics, Unlock panics with the same value after all are answered.
func (x *Lease) Unlock(ctx context.Context) error {
	lost := x.Err()
	x.mu.Lock()
	again := x.unlocked
	x.unlocked = true
	parts := slices.Clone(x.parts)
	x.mu.Unlock()
	if again {
		return fail.New("unlock", x.Of, fail.Twice)
	}
	_ = x.finish(fail.Released)
	// Another owner needs a majority of stores without the lock. Once there is one, the other stores have a little longer;
	// their releases then go on in the background.
	bound, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan vote, len(parts))
	asked, start := 0, time.Now()
	for i, p := range parts {
		if p.lease != nil {
			asked++
			go answer(answers, i, func() vote { return vote{node: i, err: p.lease.Holding().Unlock(bound)} })
		}
	}
	free, lacking := len(parts)-asked, 0
	var failed fail.List
	var panicked any
	var cut *time.Timer
	for range asked {
		if cut == nil && free >= x.majority {
			cut = time.AfterFunc(max(2*time.Since(start), x.patience/10), cancel)
			defer cut.Stop()
		}
		a := <-answers
		panicked = cmp.Or(panicked, a.panicked)
		if a.err == nil {
			free++
			continue
		}
		failed = append(failed, fmt.Errorf("store %d: %w", a.node, fail.Bare(x.Of, a.err)))
		if errors.Is(a.err, fail.Lost) || errors.Is(a.err, fail.Closed) {
			lacking++
		}
	}
	switch {
	case panicked != nil:
		panic(panicked)
	case lost != nil:
		return fail.New("unlock", x.Of, lost)
	case free < x.majority, asked-lacking < x.majority: // in the second case the lease was lost unnoticed
		return fail.New("unlock", x.Of, failed)
	}
	return nil
}
