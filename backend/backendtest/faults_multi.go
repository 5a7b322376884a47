package backendtest

import (
	"context"
	"slices"

	"github.com/mortise-go/mortise/backend"
)

// The operations on several locks that Faults sees, where the backend has them. Name and
// Owner are those of the first.
const (
	OpAcquireAll Op = "acquire all"
	OpReleaseAll Op = "release all"
)

// faultyMulti is what a faulty session has besides if the one under it takes several locks.
type faultyMulti struct {
	f     *Faults
	under backend.MultiSession
}

// What capabilities add to a session.
type (
	countOps interface {
		SetCount(ctx context.Context, r backend.CountRequest) (bool, error)
		Count(ctx context.Context, t backend.Topic) (int64, error)
		CountDown(ctx context.Context, r backend.CountRequest) (int64, error)
		DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error)
		AddCount(ctx context.Context, r backend.CountRequest) (int64, error)
		TakeCount(ctx context.Context, r backend.CountRequest) (backend.TakeReply, error)
		CancelTake(ctx context.Context, r backend.CountRequest) error
		DrainCount(ctx context.Context, r backend.CountRequest) (int64, error)
		Permits()
	}
	sideOps interface {
		Withdraw(ctx context.Context, t backend.Topic, claimant string) error
	}
	lineOps interface {
		Leave(ctx context.Context, r backend.LeaveRequest) (backend.LeaveReply, error)
	}
)

// withMulti gives a faulty session x the locks that are taken together, if the one under it
// has them, and leaves it what else it can do.
func withMulti(x faultySession, under backend.Session, f *Faults) backend.Session {
	multi, has := under.(backend.MultiSession)
	if !has {
		return x
	}
	m := faultyMulti{f, multi}
	c, counting := x.(countOps)
	s, sided := x.(sideOps)
	l, fair := x.(lineOps)
	switch {
	case counting && sided && fair:
		return struct {
			faultySession
			countOps
			sideOps
			lineOps
			faultyMulti
		}{x, c, s, l, m}
	case counting && sided:
		return struct {
			faultySession
			countOps
			sideOps
			faultyMulti
		}{x, c, s, m}
	case counting && fair:
		return struct {
			faultySession
			countOps
			lineOps
			faultyMulti
		}{x, c, l, m}
	case sided && fair:
		return struct {
			faultySession
			sideOps
			lineOps
			faultyMulti
		}{x, s, l, m}
	case counting:
		return struct {
			faultySession
			countOps
			faultyMulti
		}{x, c, m}
	case sided:
		return struct {
			faultySession
			sideOps
			faultyMulti
		}{x, s, m}
	case fair:
		return struct {
			faultySession
			lineOps
			faultyMulti
		}{x, l, m}
	}
	return struct {
		faultySession
		faultyMulti
	}{x, m}
}

func (s faultyMulti) Groups(names []string) [][]int { return s.under.Groups(names) }

func (s faultyMulti) AcquireAll(ctx context.Context, in []backend.AcquireRequest) ([]backend.AcquireReply, error) {
	in = slices.Clone(in)
	c := Call{Op: OpAcquireAll, Requests: len(in)}
	if len(in) > 0 {
		c.Name, c.Owner = in[0].Name, in[0].Owner
	}
	return pass(s.f, ctx, c, func(ctx context.Context) ([]backend.AcquireReply, error) {
		return s.under.AcquireAll(ctx, in)
	})
}

func (s faultyMulti) ReleaseAll(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	in = slices.Clone(in)
	c := Call{Op: OpReleaseAll, Requests: len(in)}
	if len(in) > 0 {
		c.Name, c.Owner = in[0].Name, in[0].Owner
	}
	got, err := pass(s.f, ctx, c, func(ctx context.Context) ([]backend.ReleaseResult, error) {
		out := make([]backend.ReleaseResult, len(in))
		s.under.ReleaseAll(ctx, in, out)
		return out, nil
	})
	copy(out, got)
	if err != nil {
		for i := range out {
			out[i] = backend.ReleaseResult{Err: err}
		}
	}
}
