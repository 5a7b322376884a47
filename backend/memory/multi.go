package memory

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise/backend"
)

var _ backend.MultiSession = (*session)(nil)

// Groups is one group: all names are in one place.
func (x *session) Groups(names []string) [][]int {
	if len(names) == 0 {
		return nil
	}
	group := make([]int, len(names))
	for i := range group {
		group[i] = i
	}
	return [][]int{group}
}

func (x *session) AcquireAll(ctx context.Context, in []backend.AcquireRequest) ([]backend.AcquireReply, error) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	out := make([]backend.AcquireReply, len(in))
	granted := true
	seen := make(map[string]bool, len(in))
	for i, q := range in {
		r := s.find(q.Name)
		switch {
		case seen[q.Name]:
			return nil, &backend.RequestError{Index: i, Err: &backend.Fault{Err: fmt.Errorf("memory: %q twice in one AcquireAll", q.Name)}}
		case r == nil, !r.foreign && r.sides == nil && r.of(q.Owner):
		case r.foreign, r.sides != nil:
			return nil, &backend.RequestError{Index: i, Err: wrongKind(r)}
		default:
			granted = false
			out[i].Remaining = remaining(r.deadline)
		}
		seen[q.Name] = true
	}
	if !granted {
		return out, nil
	}
	for i, q := range in {
		if s.find(q.Name) == nil {
			s.put(&record{name: q.Name, owner: q.Owner, holds: 1, holder: x}, q.Lease)
		}
		out[i].Granted = true
		if q.Fenced {
			out[i].Token = s.tokens.next(q.Name)
		}
	}
	return out, nil
}

func (x *session) ReleaseAll(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	for i, q := range in {
		if err != nil {
			out[i] = backend.ReleaseResult{Err: err}
			continue
		}
		r, err := s.held(q.Name, q.Owner)
		if r != nil && q.Keep > 0 {
			r.holds = q.Keep
		} else if r != nil && s.leave(r, q.Owner) {
			s.released(r)
		}
		out[i] = backend.ReleaseResult{Held: r != nil, Err: err}
	}
}
