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
	// Acquire takes one lock. The lease's parent is ctx; the waiting ends with wait.
	Acquire(ctx, wait context.Context, r engine.Request) (*lease.Handle, error)
	// AcquireAll takes all locks with one command, or returns the index of a lock that it could not take. It does not
	// wait for a lock; wait bounds the command.
	AcquireAll(ctx, wait context.Context, rs []engine.Request) (leases []*lease.Handle, failed int, err error)
	// Together reports whether AcquireAll can take a request. Group returns the indexes of the names that one command
	// can take with the first name.
	Together(r *engine.Request) bool
	Group(names []string) []int
	// Unanswered returns an error that says why a request about a name has had no answer for d: requests wait before they
	// are sent, or the store failed meanwhile; nil if that is not known.
	Unanswered(name string, d time.Duration) error
	// Enters reports whether a call with ctx re-enters the lock, or enters it under a delegation.
	Enters(ctx context.Context, name string) bool
}

// Part is one of the locks of a set.
type Part struct {
	Name string
	// Acquirer takes Request; nil if the lock belongs to another implementation of Locker. Request then has the options
	// of the call only.
	Acquirer Acquirer
	Request  engine.Request
	// Other takes the lock of another implementation of Locker: it tries, or waits for wait at most; a wait of 0 is
	// bounded by ctx only.
	Other func(ctx context.Context, try bool, wait time.Duration) (*lease.Handle, error)
	// Of is the type of the Locker, for errors.
	Of string
}

// keepFor is how long a call at first keeps its parts while it waits for another part, and keepMax how long at most.
// The time grows: if a part takes longer than keepFor, on a distant or busy store, calls would go on taking parts from
// each other. Three quarters of the shortest lease bound it: see attempt.keepUntil.
const (
	keepFor = 250 * time.Millisecond
	keepMax = 16 * keepFor
)

// LockAll takes all parts. Wait bounds the waiting for all of them together; a wait of 0 is bounded by ctx only.
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
		again := err != nil && !waited && a.again(err)
		if err == nil {
			err = a.endedMeanwhile(t.held, nil)
		}
		if err == nil {
			return lease.NewHandle(&held{Facts: lease.Facts{Of: Name(parts), Ctx: t.ctx}, leases: t.held}), nil
		}
		bound.Begins(bounds)
		if !again && ctx.Err() == nil {
			err = a.endedMeanwhile(t.held, err)
		}
		// The release goes on in the background if it fails, or if the wait is over.
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

// Name returns the name of a set: the names of its parts.
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
	rounds int // the number of rounds that failed; not zero: the call has waited
}

// op returns the operation that errors name.
func (a *set) op() string {
	if a.try {
		return "trylockall"
	}
	return "lockall"
}

// order returns the order of the parts in the next round, as indexes. It is nil, the order given, in round 0. From then
// on it is the order of the names, so that calls do not wait for each other's parts in a ring. In every second round
// the part on which the last round failed comes first.
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

// again reports whether the call goes on after a round that failed with err: another owner held a part, or a store
// failed after the call had waited. After a failure of a store the next round begins with its part: the wait for a
// first part sits an outage out, as that of Lock does, and any other failure there ends the call.
func (a *set) again(err error) bool {
	switch {
	case a.try, fail.IsCrowded(err):
		return false
	case errors.Is(err, fail.NotAcquired), errors.Is(err, fail.NoVote):
		return true
	case a.rounds == 0 || !errors.Is(err, fail.Unavailable):
		return false
	}
	a.rounds |= 1 // the number of the next round is even: see order
	return true
}

// pause sleeps for a random time between two rounds, from the second pause on: two calls that want the same parts in
// different orders would otherwise take parts from each other in step. It reports false if bounds has ended.
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

// late returns the error of a call whose wait ended between two rounds. Err is the error of the last round, about the
// part failed.
func (a *set) late(bounds context.Context, failed int, err error) error {
	late := &fail.Error{Op: "lockall", Name: a.parts[failed].Name, Err: fail.Gone(bounds)}
	switch {
	case !fail.WaitIsOver(late.Err):
	case errors.Is(err, fail.Unavailable):
		return err
	default:
		late.Err = fmt.Errorf("%w: parts were held in turn for %v", fail.NotAcquired, a.wait)
		if last := fail.Of(err); last != nil {
			late.Remaining = last.Remaining
		}
	}
	return fail.Public(late)
}

// endedMeanwhile returns an error if a part in held was lost meanwhile, or its client was closed, and otherwise err.
func (a *set) endedMeanwhile(held []*lease.Handle, err error) error {
	for _, l := range held {
		h := l.Holding()
		switch ended := h.Err(); {
		case ended == nil:
		case errors.Is(ended, fail.Closed):
			return fail.New(a.op(), h.Name(), fmt.Errorf("ended before the other parts were held: %w",
				fail.Bare(h.Name(), ended)))
		default:
			return fail.New(a.op(), h.Name(), fmt.Errorf("%w: lost before the other parts were held; take a longer "+
				"lease, or look why the store or this process is so slow: %w", fail.Unavailable, fail.Bare(h.Name(), ended)))
		}
	}
	return err
}

// attempt is one try to take all parts.
type attempt struct {
	*set
	ctx    context.Context // the parent of the next part's lease; it carries the parts in held
	bounds context.Context // bounds the waiting
	order  []int           // nil: the order given
	done   []bool          // by index of the part: it is held
	held   []*lease.Handle
	// keepUntil is when three quarters of the shortest lease in held are over; zero if the watchdog renews all leases
	// without a bound. Afterwards another part is taken only if it is free.
	keepUntil time.Time
}

// take is takeAll, but releases the held parts if an observer or another implementation of Locker panics.
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

// takeAll takes all parts, or returns the index of the part that it could not take. In round 0 it takes as many parts
// as possible with one command, and only tries them, unless there is just one. In later rounds it takes the parts one
// by one, and waits: for the first part as long as the call may, and for each other part for a short time, while it
// keeps the parts in held. Each part is taken under the context of the one before, so the last context carries all.
// Waited reports that the wait for the first part failed: the call must not go on.
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
		try := t.try || t.rounds == 0 && len(t.parts) > 1
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
				err = t.unanswered(failed)
			}
			return failed, n == 0 && !try, err
		}
		t.held = append(t.held, leases...)
		t.ctx = leases[len(leases)-1].Holding().Context()
		for _, i := range which {
			t.markHeld(i)
		}
	}
	return 0, false, nil
}

// unanswered returns the error of a call whose wait ended before a store answered the request for part i. It says why,
// if that is known.
func (t *attempt) unanswered(i int) error {
	p := &t.parts[i]
	err := fmt.Errorf("%w: the store gave no answer in time, with a wait of %v", fail.Unavailable, t.wait)
	if p.Acquirer != nil {
		if why := p.Acquirer.Unanswered(p.Name, t.wait); why != nil {
			err = fmt.Errorf("%w: no answer in time, with a wait of %v: %w", fail.Unavailable, t.wait, why)
		}
	}
	return fail.New("lockall", p.Name, err)
}

// markHeld notes that part i is held.
func (t *attempt) markHeld(i int) {
	t.done[i] = true
	lasts := max(t.parts[i].Request.Lease, t.parts[i].Request.MaxHold) // one of them at most is given
	if lasts == 0 {
		return
	}
	if until := time.Now().Add(lasts / 4 * 3); t.keepUntil.IsZero() || until.Before(t.keepUntil) {
		t.keepUntil = until
	}
}

// waitFor returns how long to wait for the next part; 0: until bounds ends. In the rounds that take the parts in the
// order of their names it grows from round to round, as far as the leases in held allow.
func (t *attempt) waitFor() time.Duration {
	keep := keepFor
	if t.rounds%2 == 1 {
		keep = min(keepFor<<min(t.rounds/2, 16), keepMax)
	}
	if !t.keepUntil.IsZero() {
		keep = min(keep, max(time.Until(t.keepUntil), time.Millisecond))
	}
	switch {
	case len(t.held) == 0:
		return t.wait
	case t.wait == 0:
		return keep
	}
	return min(keep, t.wait)
}

// request returns the request for a part.
func (t *attempt) request(i int, try bool) engine.Request {
	r := t.parts[i].Request
	if r.Try, r.Wait = try, 0; !try {
		r.Wait = t.waitFor()
	}
	r.Part, r.Resumed = !t.try, t.rounds > 0
	return r
}

// together returns the parts that one command can take: part i first, and others. It returns fewer than two if no other
// part goes with part i.
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

// one takes a single part.
func (t *attempt) one(i int, try bool) (*lease.Handle, error) {
	p := &t.parts[i]
	if p.Acquirer != nil {
		wait := t.bounds
		if !try && len(t.held) > 0 { // the loss of a held part ends the wait for the next
			child, cancel := context.WithCancelCause(t.bounds)
			defer cancel(nil)
			held := t.ctx // it may end as the next is acquired
			defer context.AfterFunc(held, func() { cancel(context.Cause(held)) })()
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

// lineage marks the context given to another implementation of Locker. It shows whether the lease's context is derived
// from that context.
type lineage struct {
	of   *attempt
	part int
}

// adopt gives a lease whose context is not derived from ctx another context: one that ends when either context ends,
// and carries the values of both.
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

// Context returns the context with the values of both contexts.
func (a *adopted) Context() context.Context { return a.ctx }

// Unlock ends the context, and then unlocks the lease.
func (a *adopted) Unlock(ctx context.Context) error {
	a.end()
	return a.Holding.Unlock(ctx)
}

// held is the lease of a set.
type held struct {
	lease.Facts
	leases []*lease.Handle
	done   atomic.Bool // Unlock was called
}

// Err returns the error of the first part that is not held any more.
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
