package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// aged implements [backend.AgeStore].
type aged struct{ *client }

// KnowsAge implements [backend.AgeStore]. A new store has lost no data: until [Store.Flush] it is old enough for each
// request.
func (x aged) KnowsAge() bool { return true }

// AcquireAged implements [backend.AgeStore].
func (x aged) AcquireAged(ctx context.Context, q backend.AgedRequest) (r backend.AgedReply, err error) {
	s := x.store
	if err = x.Lock(ctx); err != nil {
		return r, err
	}
	young := time.Duration(0)
	if !s.lost.IsZero() {
		young = time.Until(s.lost.Add(q.Least))
	}
	if young <= 0 {
		x.Unlock()
		r.AcquireReply, err = x.Acquire(ctx, q.AcquireRequest)
		return r, err
	}
	defer x.Unlock()
	n, st := x.Begin(q.Name)
	if err = n.Refuses(backend.KindLock); err == nil {
		if n.Lock.Left(n.For(st, record.LockData), q.Owner) > 0 {
			r.AcquireReply = n.Lock.Acquire(st, q.AcquireRequest)
		} else {
			r.Young, r.Remaining = true, st.Left(st.Now+young)
		}
	}
	x.End(n, st)
	return r, err
}

// multi implements [backend.BatchStore]: operations on several names in one step.
type multi struct{ *client }

// Groups implements [backend.BatchStore]. It returns one group of all names.
func (x multi) Groups(names []string) [][]int {
	if len(names) == 0 {
		return nil
	}
	group := make([]int, len(names))
	for i := range group {
		group[i] = i
	}
	return [][]int{group}
}

// AcquireAll implements [backend.BatchStore].
func (x multi) AcquireAll(ctx context.Context, in []backend.AcquireRequest) ([]backend.AcquireReply, error) {
	if err := x.Lock(ctx); err != nil {
		return nil, err
	}
	defer x.Unlock()
	out := make([]backend.AcquireReply, len(in))
	granted := true
	for i, q := range in {
		n, st := x.Begin(q.Name)
		err := n.Refuses(backend.KindLock)
		if slices.ContainsFunc(in[:i], func(p backend.AcquireRequest) bool { return p.Name == q.Name }) {
			err = &backend.Fault{Err: fmt.Errorf("memory: %q twice in one AcquireAll", q.Name)}
		}
		if err == nil {
			out[i].Remaining = n.Lock.Ask(n.For(st, record.LockData), q.Owner)
		}
		x.End(n, st)
		if err != nil {
			return nil, &backend.RequestError{Index: i, Err: err}
		}
		granted = granted && out[i].Remaining == 0
	}
	for i, q := range in {
		if granted {
			r, st := x.store.open(x.client, q.Name) // no lease ends: the lock is still what Ask has found
			out[i] = r.Lock.Take(r.For(st, record.LockData), q)
			x.store.end(r, st)
		}
	}
	return out, nil
}

// ReleaseAll implements [backend.BatchStore].
func (x multi) ReleaseAll(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	for i, q := range in {
		r, err := x.Release(ctx, q)
		out[i] = backend.ReleaseResult{Held: r.Held, Err: err}
	}
}
