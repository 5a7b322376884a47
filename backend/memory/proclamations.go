package memory

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// proclaimed implements [backend.ProclamationStore].
type proclaimed struct{ *client }

func saidName(name string) string { return "mortise:1:proclaim:{" + name + "}" }

// Proclaim implements [backend.ProclamationStore].
func (x proclaimed) Proclaim(ctx context.Context, q backend.ProclaimRequest) (bool, error) {
	return locked(ctx, x.client, func(s *Store) (bool, error) {
		if left, err := s.left(q.Name, q.Owner); left == 0 {
			return false, err
		}
		r := s.find(saidName(q.Name))
		if r != nil && r.said == nil {
			return false, wrongKind(r)
		}
		var say record.Said
		if r != nil {
			say = *r.said
		}
		was, st := say, &record.Step{Name: q.Name, Now: time.Since(s.epoch)}
		if say.Proclaim(st, q) {
			s.watchers.tell(released, backend.Topic{Kind: backend.KindProclamation, Name: q.Name})
		}
		if say != was {
			if r != nil {
				s.remove(r)
			}
			s.put(&stored{name: saidName(q.Name), said: &say}, s.epoch.Add(say.Until))
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
		left, err := s.left(name, r.said.Owner)
		if left == 0 || r.said.Text == "" {
			return out, err
		}
		return backend.Proclamation{
			Owner: r.said.Owner, Token: r.said.Token, Text: r.said.Text, Remaining: left,
		}, nil
	})
}
