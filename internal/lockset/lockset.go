// Package lockset takes several locks, all or none, as one lease.
package lockset

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Acquirer is the engine of a client.
type Acquirer interface {
	// Acquire takes one lock: its lease's parent is ctx, and the waiting ends with wait.
	Acquire(ctx, wait context.Context, r engine.Request) (*lease.Handle, error)
	// AcquireAll takes those that go together, or says which one could not be had.
	AcquireAll(ctx, wait context.Context, rs []engine.Request) (leases []*lease.Handle, failed int, err error)
	// Together reports whether a request can be taken together with others, and Group which of several names
	// one command takes with the first.
	Together(r *engine.Request) bool
	Group(names []string) []int
	// Enters reports whether a call with ctx enters what it holds already.
	Enters(ctx context.Context, name string) bool
}

// Part is one of the locks of a set.
type Part struct {
	Name string
	// Acquirer takes Request; nil where the lock is of another Locker.
	Acquirer Acquirer
	Request  engine.Request
	// Other takes the lock of another Locker, waiting for as long as wait says, 0 for as long as ctx, or trying.
	Other func(ctx context.Context, try bool, wait time.Duration) (*lease.Handle, error)
	// Of names the Locker's type, in errors.
	Of string
}

// keepFor is for how long a call keeps the parts that it has while it waits for another, at first. Where the store is
// so far away, or so busy, that no part is had in that time, the calls would go on taking parts from each other.
const (
	keepFor = 250 * time.Millisecond
	keepMax = 16 * keepFor
)

// LockAll takes all parts. Wait bounds the whole; 0 for as long as ctx.
func LockAll(ctx context.Context, parts []Part, wait time.Duration) (*lease.Handle, error) {
	return lockAll(ctx, &set{parts: parts, wait: wait, began: time.Now()})
}

// TryLockAll takes all parts that are free, or none.
func TryLockAll(ctx context.Context, parts []Part) (*lease.Handle, error) {
	return lockAll(ctx, &set{parts: parts, try: true, began: time.Now()})
}

func lockAll(ctx context.Context, a *set) (*lease.Handle, error) {
	parts, wait := a.parts, a.wait
	bounds := ctx
	if wait > 0 {
		var cancel context.CancelFunc
		bounds, cancel = bound.Wait(ctx, wait)
		defer cancel()
	}
	for first := 0; ; a.rounds++ {
		t := &attempt{set: a, ctx: ctx, bounds: bounds, order: a.order(first), done: make([]bool, len(parts))}
		failed, waited, err := t.take()
		if err == nil {
			err = a.lostMeanwhile(t.held, nil)
		}
		if err == nil {
			return lease.NewHandle(&held{Facts: lease.Facts{Of: Name(parts), Ctx: t.ctx}, leases: t.held}), nil
		}
		bound.Begins(bounds)
		again := !a.try && !waited && (errors.Is(err, fail.NotAcquired) || errors.Is(err, fail.NoVote))
		if !again && ctx.Err() == nil {
			err = a.lostMeanwhile(t.held, err)
		}
		// Where it fails, or the waiting is over, it goes on in the background.
		engine.UnlockAll(bounds, context.WithoutCancel(ctx), t.held)
		if !again {
			return nil, err
		}
		if !a.pause(bounds) {
			return nil, a.late(bounds, failed, err)
		}
		first = failed
	}
}

// Name is that of the set.
func Name(parts []Part) string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Name
	}
	return strings.Join(names, " + ")
}

// set is one call of LockAll.
type set struct {
	parts  []Part
	wait   time.Duration
	began  time.Time
	try    bool
	rounds int // that a part was held in
}

// op is what errors call it.
func (a *set) op() string {
	if a.try {
		return "trylockall"
	}
	return "lockall"
}

// order is that in which parts are taken: as they were given at first. Once one was held it is that of their names, so
// that calls do not wait for each other's parts in a ring. A part that was waited for in vain while others were kept
// is the first in each second round.
func (a *set) order(failed int) []int {
	if a.rounds == 0 {
		return nil
	}
	order := make([]int, len(a.parts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return strings.Compare(a.parts[i].Name, a.parts[j].Name) })
	if a.rounds%2 == 0 {
		at := slices.Index(order, failed)
		copy(order[1:], order[:at])
		order[0] = failed
	}
	return order
}

// pause lets others go first, at random, when parts were held again and again: two calls that want the same parts in
// another order would otherwise go on taking them from each other, in step. It is false if bounds ends.
func (a *set) pause(bounds context.Context) bool {
	if a.rounds > 0 {
		t := time.NewTimer(rand.N(time.Millisecond << min(a.rounds, 6)))
		defer t.Stop()
		select {
		case <-t.C:
		case <-bounds.Done():
		}
	}
	return bounds.Err() == nil
}

// late is the error where the waiting ended between two rounds. Err is of the part that was held last.
func (a *set) late(bounds context.Context, failed int, err error) error {
	late := &fail.Error{Op: "lockall", Name: a.parts[failed].Name, Err: fail.Gone(bounds)}
	if fail.WaitIsOver(late.Err) {
		late.Err = fmt.Errorf("%w: parts were held in turn for %v", fail.NotAcquired, a.wait)
		if last := fail.Of(err); last != nil {
			late.Remaining = last.Remaining
		}
	}
	return fail.Public(late)
}

// lostMeanwhile is err, or what explains it: a part that was held already is lost.
func (a *set) lostMeanwhile(held []*lease.Handle, err error) error {
	for _, l := range held {
		h := l.Holding()
		if lost := h.Err(); lost != nil && !errors.Is(lost, fail.Closed) {
			return fail.New(a.op(), h.Name(), fmt.Errorf("%w: lost before the other parts were held; take a longer "+
				"lease, or look why the store or this process is so slow: %w", fail.Unavailable, lost))
		}
	}
	return err
}

// attempt is one try to take all parts.
type attempt struct {
	*set
	ctx    context.Context // of the next part: it carries those that are held
	bounds context.Context // of the waiting
	order  []int           // nil: as they were given
	done   []bool
	held   []*lease.Handle
}

// take is takeAll. Where an observer panics, or a Locker of another type, what is held is released.
func (t *attempt) take() (failed int, waited bool, err error) {
	returned := false
	defer func() {
		if !returned {
			engine.UnlockAll(t.bounds, context.WithoutCancel(t.bounds), t.held)
		}
	}()
	failed, waited, err = t.takeAll()
	returned = true
	return failed, waited, err
}

// takeAll tries to take as many parts as can be by one command, and then the others. Where a part was held it waits for
// each of them by itself: for the first as long as it may, for the others, while it keeps what it has, for keepFor.
// Each is taken under the context of the one before, so that the last carries all. Failed is the part that could not
// be had, and waited tells that the waiting is over.
func (t *attempt) takeAll() (failed int, waited bool, err error) {
	for n := range t.parts {
		i := n
		if t.order != nil {
			i = t.order[n]
		}
		if t.done[i] {
			continue
		}
		which := t.together(i)
		try := t.try || t.rounds == 0 && (n > 0 || len(which) > 1)
		var leases []*lease.Handle
		if len(which) > 1 {
			rs := make([]engine.Request, len(which))
			for k, j := range which {
				rs[k] = t.request(j, try)
			}
			leases, failed, err = t.parts[i].Acquirer.AcquireAll(t.ctx, t.bounds, rs)
			failed = which[failed]
		} else {
			which, failed = []int{i}, i
			leases = make([]*lease.Handle, 1)
			leases[0], err = t.one(i, try)
		}
		if err != nil {
			if try && errors.Is(err, fail.WaitOver) {
				err = fail.New("lockall", t.parts[failed].Name,
					fmt.Errorf("%w: the store gave no answer in time, with a wait of %v", fail.Unavailable, t.wait))
			}
			return failed, n == 0 && !try, err
		}
		t.held = append(t.held, leases...)
		t.ctx = leases[len(leases)-1].Holding().Context()
		for _, i := range which {
			t.done[i] = true
		}
	}
	return 0, false, nil
}

// waitFor is for how long the next part is waited for; 0: as long as bounds. It grows from round to round where the
// parts are taken in the order of their names.
func (t *attempt) waitFor() time.Duration {
	keep := keepFor
	if t.rounds%2 == 1 {
		keep = min(keepFor<<min(t.rounds/2, 16), keepMax)
	}
	switch {
	case len(t.held) == 0:
		return t.wait
	case t.wait == 0:
		return keep
	}
	return min(keep, t.wait)
}

// request is what is asked for a part.
func (t *attempt) request(i int, try bool) engine.Request {
	r := t.parts[i].Request
	if r.Try, r.Wait = try, 0; !try {
		r.Wait = t.waitFor()
	}
	r.Part, r.Resumed = !t.try, t.rounds > 0
	return r
}

// together are the parts that one command takes together with part i, which is the first of them; fewer than two if
// there are none.
func (t *attempt) together(i int) []int {
	a := t.parts[i].Acquirer
	if t.rounds > 0 || a == nil || !a.Together(&t.parts[i].Request) || a.Enters(t.ctx, t.parts[i].Name) {
		return nil
	}
	var parts []int
	var names []string
	in := make(map[string]bool)
	for n := range t.parts {
		j := (i + n) % len(t.parts)
		p := &t.parts[j]
		if t.done[j] || p.Acquirer != a || in[p.Name] || !a.Together(&p.Request) || a.Enters(t.ctx, p.Name) {
			continue
		}
		in[p.Name] = true
		parts, names = append(parts, j), append(names, p.Name)
	}
	if len(parts) < 2 {
		return nil
	}
	group := a.Group(names)
	which := make([]int, len(group))
	for k, x := range group {
		which[k] = parts[x]
	}
	return which
}

// one takes one part.
func (t *attempt) one(i int, try bool) (*lease.Handle, error) {
	p := &t.parts[i]
	if p.Acquirer != nil {
		wait := t.bounds
		if !try && len(t.held) > 0 { // a part that is lost ends the wait for the next
			child, cancel := context.WithCancelCause(t.bounds)
			defer cancel(nil)
			defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })()
			wait = child
		}
		return p.Acquirer.Acquire(t.ctx, wait, t.request(i, try))
	}
	mark := lineage{t, len(t.held)}
	wait := time.Duration(0)
	if !try {
		if wait = t.waitFor(); t.wait > 0 {
			wait = max(min(wait, t.wait-time.Since(t.began)), time.Millisecond)
		}
	}
	l, err := p.Other(context.WithValue(t.ctx, mark, true), try, wait)
	switch {
	case err != nil:
		return nil, err
	case l.Holding() == nil:
		return nil, fail.New(t.op(), p.Name, fail.Invalidf("its Locker (%s) returned neither a lease nor an error", p.Of))
	case l.Holding().Context().Value(mark) == nil:
		return adopt(t.ctx, l), nil
	}
	return l, nil
}

// lineage marks the context that a Locker is given, to tell whether its lease's comes from it.
type lineage struct {
	of   *attempt
	part int
}

// adopt makes a lease whose context does not come from ctx one whose context ends, and carries, what both do.
func adopt(ctx context.Context, l *lease.Handle) *lease.Handle {
	both, cancel := context.WithCancelCause(ctx)
	own := l.Holding().Context()
	stop := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	return lease.NewHandle(&adopted{
		Holding: l.Holding(), ctx: lease.Joined{Context: both, Other: own}, end: func() { stop(); cancel(fail.Released) },
	})
}

type adopted struct {
	lease.Holding
	ctx context.Context
	end func()
}

// Context carries what both contexts carry.
func (a *adopted) Context() context.Context { return a.ctx }

// Unlock ends the context first.
func (a *adopted) Unlock(ctx context.Context) error {
	a.end()
	return a.Holding.Unlock(ctx)
}

// held stands behind the lease of a set.
type held struct {
	lease.Facts
	leases []*lease.Handle
	done   atomic.Bool // Unlock was called
}

// Err is that of the first part that is lost.
func (m *held) Err() error {
	for _, l := range m.leases {
		if err := l.Holding().Err(); err != nil {
			return err
		}
	}
	return nil
}

// Unlock releases all parts.
func (m *held) Unlock(ctx context.Context) error {
	if m.done.Swap(true) {
		return fail.New("unlock", m.Of, fail.Twice)
	}
	return errors.Join(engine.UnlockAll(ctx, ctx, m.leases)...)
}
