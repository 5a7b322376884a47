package mortise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// Part is one of the locks that [LockAll] takes.
type Part struct {
	// Locker is whose lock it is: a client, a kind, a wrapper. Parts may differ.
	Locker Locker
	// Name is the lock's name.
	Name string
}

// LockAll takes several locks, all or none, as one lease. It does not deadlock,
// whatever the order in which it and others name the parts: it waits for one lock at
// a time and holds none meanwhile. (When one is held, it gives back those that it has, waits for
// that one, and then tries the others, as C++'s std::lock does.) It is
// Redisson's MultiLock, and excludes it.
//
// The lease ends as soon as one part is lost; its Unlock then still releases the
// others. Its context carries all parts, so any of them can be entered again
// with it, and a part that ctx holds already, or that is named twice, is entered again. It has no
// fencing token; take the parts one by one where that is needed. Two clients of one store
// exclude each other: a name of theirs in parts of both is never had.
//
// Options are those of Lock; WithWait bounds the whole. Errors are those of Lock, and
// name the part. They wrap [ErrUnavailable] also if a part was lost before the others were had.
//
// Cost: locks of one [*Client], those of Kind{Fenced} and Kind{NonReentrant}
// included, are taken by one command, on a cluster by one for each slot, and
// released by as many. Other parts (fair, spinning, read-write, other Lockers) cost one
// each, and so does entering again. As many again for each time that one was held; while it
// waits, it costs what Lock does.
func LockAll(ctx context.Context, parts []Part, opts ...Option) (*Lease, error) {
	a := &allOf{parts: parts, began: time.Now()}
	if err := a.check(ctx, opts); err != nil {
		return nil, &Error{Op: "lockall", Name: nameAll(parts), Err: err}
	}
	wait := ctx
	if a.wait > 0 {
		var cancel context.CancelFunc
		wait, cancel = boundWait(ctx, a.wait)
		defer cancel()
	}
	for first := 0; ; a.rounds++ {
		t := &attempt{allOf: a, ctx: ctx, wait: wait, first: first, done: make([]bool, len(parts))}
		failed, waited, err := t.takeAll()
		if err == nil {
			return &Lease{&multiLease{facts: facts{of: nameAll(parts), ctx: t.ctx}, leases: t.held}}, nil
		}
		nowWaits(wait)
		again := !waited && (errors.Is(err, ErrNotAcquired) || errors.Is(err, errBarred))
		if !again && ctx.Err() == nil {
			err = lostMeanwhile(t.held, err)
		}
		// Where it fails, or ctx has ended, it goes on in the background.
		unlockAll(ctx, context.WithoutCancel(ctx), t.held)
		if !again {
			return nil, err
		}
		if !a.pause(wait) {
			return nil, a.late(wait, failed, err)
		}
		first = failed
	}
}

// allOf is one call of LockAll.
type allOf struct {
	parts []Part
	opts  []Option // but WithWait
	wait  time.Duration
	// replicas: each part waits for them by itself.
	replicas bool
	began    time.Time
	rounds   int // that a part was held in
}

// check reads the options, and refuses what can be seen to be wrong before anything is locked.
func (a *allOf) check(ctx context.Context, opts []Option) error {
	if ctx == nil {
		return fmt.Errorf("%w: the context is nil; use context.Background()", ErrInvalid)
	}
	probe, err := (&request{name: "any"}).with(opts)
	if err != nil {
		return errors.Unwrap(err)
	}
	a.wait, a.replicas = probe.wait, probe.replicas.n > 0
	for _, o := range opts {
		if _, ok := o.(waitOption); !ok {
			a.opts = append(a.opts, o)
		}
	}
	if len(a.parts) == 0 {
		return fmt.Errorf("%w: LockAll without parts", ErrInvalid)
	}
	for _, p := range a.parts {
		c, _, own := lockerOf(p.Locker)
		switch {
		case p.Locker == nil, own && c == nil:
			return fmt.Errorf("%w: the Locker of part %q is nil", ErrInvalid, shorten(p.Name))
		case own:
			if err := checkName(p.Name); err != nil {
				return fmt.Errorf("part %q: %w", shorten(p.Name), err)
			}
		}
	}
	return nil
}

// pause lets others go first, at random, when parts were held again and again: two who want
// the same parts in another order would else go on taking them from each other, in step. It is
// false if wait ends.
func (a *allOf) pause(wait context.Context) bool {
	if a.rounds > 0 {
		t := time.NewTimer(rand.N(time.Millisecond << min(a.rounds, 6)))
		defer t.Stop()
		select {
		case <-t.C:
		case <-wait.Done():
		}
	}
	return wait.Err() == nil
}

// late is the error where the waiting ended between two rounds. err is of the part that was held last.
func (a *allOf) late(wait context.Context, failed int, err error) error {
	late := &Error{Op: "lockall", Name: a.parts[failed].Name, Err: gone(wait)}
	if errors.Is(late.Err, errWaitOver) {
		late.Err = fmt.Errorf("%w: now it and now another of the parts was held, for all of %v", ErrNotAcquired, a.wait)
		var last *Error
		if errors.As(err, &last) {
			late.Remaining = last.Remaining
		}
	}
	return late
}

// lostMeanwhile is err, or what explains it: a part that was had already is lost.
func lostMeanwhile(held []*Lease, err error) error {
	for _, l := range held {
		if lost := l.Err(); lost != nil && !errors.Is(lost, ErrClosed) {
			return &Error{Op: "lockall", Name: l.Name(), Err: fmt.Errorf("%w: it was lost before the other parts were had; take a longer lease, or look why the store or this process is so slow: %w", ErrUnavailable, lost)}
		}
	}
	return err
}

// attempt is one try to take all parts.
type attempt struct {
	*allOf
	ctx   context.Context // of the next part: it carries those that are held
	wait  context.Context
	first int
	done  []bool
	held  []*Lease
}

// takeAll locks parts[first], and what goes with it in one command, waiting for it, and
// tries the others. Each is taken under the context of the one before, so that the last carries
// all. failed is the part that could not be had, and waited tells that it was waited for.
func (t *attempt) takeAll() (failed int, waited bool, err error) {
	for n := range t.parts {
		i := (t.first + n) % len(t.parts)
		if t.done[i] {
			continue
		}
		which := []int{i}
		var leases []*Lease
		if b := t.bundle(i, &which); b != nil {
			leases, failed, err = b.take(t.ctx, t.wait, n > 0)
			failed = which[failed]
		} else {
			var l *Lease
			l, err = t.one(t.parts[i], n > 0)
			leases, failed = []*Lease{l}, i
		}
		if err != nil {
			if n > 0 && errors.Is(err, errWaitOver) {
				err = &Error{Op: "lockall", Name: t.parts[failed].Name, Err: fmt.Errorf("%w: the store gave no answer in time, with a wait of %v", ErrUnavailable, t.allOf.wait)}
			}
			return failed, n == 0, err
		}
		t.held = append(t.held, leases...)
		t.ctx = leases[len(leases)-1].Context()
		for _, i := range which {
			t.done[i] = true
		}
	}
	return 0, false, nil
}

// bundle gathers what one command takes together with part i, which becomes the first of
// which; nil if that is nothing.
func (t *attempt) bundle(i int, which *[]int) *bundle {
	c, _, ok := plainOf(t.parts[i].Locker)
	if !ok || c.multi() == nil || t.replicas {
		return nil
	}
	var parts []int
	var names []string
	in := make(map[string]bool)
	for n := range t.parts {
		j := (i + n) % len(t.parts)
		p := t.parts[j]
		other, _, ok := plainOf(p.Locker)
		if t.done[j] || !ok || other != c || in[p.Name] {
			continue
		}
		if c.enters(t.ctx, &holdKey{c, lockTopic(p.Name)}) {
			if j == i {
				return nil // it is entered again
			}
			continue
		}
		in[p.Name] = true
		parts, names = append(parts, j), append(names, p.Name)
	}
	if len(parts) < 2 {
		return nil
	}
	for _, group := range c.multi().Groups(names) {
		if group[0] != 0 || len(group) < 2 {
			continue
		}
		b := &bundle{client: c, session: c.multi()}
		*which = (*which)[:0]
		for _, k := range group[:min(len(group), mostTogether)] {
			_, kind, _ := plainOf(t.parts[parts[k]].Locker)
			r, err := newRequest(names[k], false, kind, t.opts)
			if err != nil {
				continue // checked before
			}
			r.wait, r.refusedBefore = t.allOf.wait, t.rounds > 0
			b.reqs = append(b.reqs, *r)
			*which = append(*which, parts[k])
		}
		return b
	}
	return nil
}

// one takes one part.
func (t *attempt) one(p Part, try bool) (*Lease, error) {
	if c, kind, own := lockerOf(p.Locker); own {
		r, err := newRequest(p.Name, try, kind, t.opts)
		if err != nil {
			return nil, err
		}
		if !try {
			r.wait, r.refusedBefore = t.allOf.wait, t.rounds > 0
		}
		return c.serve(t.ctx, t.wait, r)
	}
	mark := lineage{t, len(t.held)}
	ctx := context.WithValue(t.ctx, mark, true)
	var l *Lease
	var err error
	if try {
		l, err = p.Locker.TryLock(ctx, p.Name, t.opts...)
	} else {
		opts := t.opts
		if t.allOf.wait > 0 {
			opts = append(opts[:len(opts):len(opts)], WithWait(max(t.allOf.wait-time.Since(t.began), time.Millisecond)))
		}
		l, err = p.Locker.Lock(ctx, p.Name, opts...)
	}
	switch {
	case err != nil:
		return nil, err
	case l == nil || l.held == nil:
		return nil, &Error{Op: "lockall", Name: p.Name, Err: fmt.Errorf("%w: its Locker (%T) returned neither a lease nor an error", ErrInvalid, p.Locker)}
	case l.Context().Value(mark) == nil:
		return adopt(t.ctx, l), nil
	}
	return l, nil
}

// lockerOf is the client behind a Locker of this package, and the kind of its locks.
func lockerOf(l Locker) (c *Client, kind Kind, own bool) {
	switch l := l.(type) {
	case *Client:
		return l, Kind{}, true
	case *kinded:
		if l != nil {
			return l.client, l.kind, true
		}
		return nil, Kind{}, true
	}
	return nil, Kind{}, false
}

// lineage marks the context that a Locker is given, to tell whether its lease's comes from it.
type lineage struct {
	of   *attempt
	part int
}

// adopt makes a lease whose context does not come from ctx one whose context ends, and carries, what both do.
func adopt(ctx context.Context, l *Lease) *Lease {
	both, cancel := context.WithCancelCause(ctx)
	own := l.Context()
	stop := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	return &Lease{&adopted{holding: l.held, ctx: joined{both, own}, end: func() { stop(); cancel(ErrReleased) }}}
}

type adopted struct {
	holding
	ctx context.Context
	end func()
}

func (a *adopted) context() context.Context { return a.ctx }

func (a *adopted) unlock(ctx context.Context) error {
	a.end()
	return a.holding.unlock(ctx)
}

type joined struct {
	context.Context
	other context.Context
}

func (j joined) Value(key any) any {
	if _, all := key.(claimsKey); all {
		return j
	}
	if v := j.Context.Value(key); v != nil {
		return v
	}
	return j.other.Value(key)
}

func nameAll(parts []Part) string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Name
	}
	return strings.Join(names, " + ")
}

// multiLease stands behind the lease of LockAll.
type multiLease struct {
	facts
	leases []*Lease

	mu   sync.Mutex
	done bool
}

func (m *multiLease) err() error {
	for _, l := range m.leases {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (m *multiLease) unlock(ctx context.Context) error {
	m.mu.Lock()
	again := m.done
	m.done = true
	m.mu.Unlock()
	if again {
		return &Error{Op: "unlock", Name: m.of, Err: errTwice}
	}
	return errors.Join(unlockAll(ctx, ctx, m.leases)...)
}
