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
	c, counting := x.(counter)
	s, sided := x.(sideOps)
	l, fair := x.(lineOps)
	switch {
	case counting && sided && fair:
		return struct {
			faultySession
			counter
			sideOps
			lineOps
			faultyMulti
		}{x, c, s, l, m}
	case counting && sided:
		return struct {
			faultySession
			counter
			sideOps
			faultyMulti
		}{x, c, s, m}
	case counting && fair:
		return struct {
			faultySession
			counter
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
			counter
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
	return pass(s.f, ctx, c, with(in, s.under.AcquireAll))
}

func (s faultyMulti) ReleaseAll(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	c := Call{Op: OpReleaseAll, Requests: len(in)}
	if len(in) > 0 {
		c.Name, c.Owner = in[0].Name, in[0].Owner
	}
	passBatch(s.f, ctx, c, in, out, batch[backend.ReleaseRequest, backend.ReleaseResult]{
		s.under.ReleaseAll, func(err error) backend.ReleaseResult { return backend.ReleaseResult{Err: err} },
	})
}
