package memory

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise/backend"
)

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
	return locked(ctx, x.client, func(s *Store) ([]backend.AcquireReply, error) {
		out := make([]backend.AcquireReply, len(in))
		granted := true
		seen, free := make(map[string]bool, len(in)), make([]bool, len(in))
		for i, q := range in {
			r, err := s.queues.asked(q.Name)
			switch {
			case seen[q.Name]:
				err = &backend.Fault{Err: fmt.Errorf("memory: %q twice in one AcquireAll", q.Name)}
			case r != nil && !r.of(q.Owner):
				granted = false
				out[i].Remaining = remaining(r.deadline)
			}
			if err != nil {
				return nil, &backend.RequestError{Index: i, Err: err}
			}
			seen[q.Name], free[i] = true, r == nil
		}
		if !granted {
			return out, nil
		}
		for i, q := range in {
			if free[i] {
				s.grant(q, x.client)
			}
			out[i] = s.tokens.granted(q.Fenced, q.Name)
		}
		return out, nil
	})
}

// ReleaseAll implements [backend.BatchStore].
func (x multi) ReleaseAll(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := x.refuses(ctx)
	for i, q := range in {
		if refused != nil {
			out[i] = backend.ReleaseResult{Err: refused}
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
