package memory

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// proclaimed implements [backend.ProclamationStore].
type proclaimed struct{ *client }

type said struct {
	owner, text string
	token       int64
}

func saidName(name string) string { return "mortise:1:proclaim:{" + name + "}" }

// Proclaim implements [backend.ProclamationStore].
func (x proclaimed) Proclaim(ctx context.Context, q backend.ProclaimRequest) (bool, error) {
	return locked(ctx, x.client, func(s *Store) (bool, error) {
		held, err := s.held(q.Name, q.Owner)
		if held == nil {
			return false, err
		}
		r := s.find(saidName(q.Name))
		if r != nil && r.said == nil {
			return false, wrongKind(r)
		}
		say := said{q.Owner, q.Text, q.Token}
		same := r == nil && q.Text == "" || r != nil && *r.said == say
		if r != nil {
			s.remove(r)
		}
		if q.Text != "" {
			s.put(&record{name: saidName(q.Name), foreign: true, said: &say}, q.Keep)
		}
		if !same {
			s.watchers.tell(released, backend.Topic{Kind: backend.KindProclamation, Name: q.Name})
		}
		return true, nil
	})
}

// Proclaimed implements [backend.ProclamationStore].
func (x proclaimed) Proclaimed(ctx context.Context, name string) (backend.Proclamation, error) {
	return locked(ctx, x.client, func(s *Store) (out backend.Proclamation, err error) {
		r := s.find(saidName(name))
		if r == nil {
			return out, nil
		}
		if r.said == nil {
			return out, wrongKind(r)
		}
		held, err := s.held(name, r.said.owner)
		if held == nil {
			return out, err
		}
		return backend.Proclamation{
			Owner: r.said.owner, Token: r.said.token, Text: r.said.text, Remaining: remaining(held.deadline),
		}, nil
	})
}
