package memory

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// proclaimed implements [backend.ProclamationStore].
type proclaimed struct{ *client }

// said is an owner's proclamation. Its text is empty once it was removed.
type said struct {
	owner, text   string
	token, number int64
}

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
		say, was := said{q.Owner, q.Text, q.Token, q.Number}, said{}
		if r != nil {
			was = *r.said
			if was.owner == say.owner && was.number > say.number {
				return true, nil
			}
			s.remove(r)
		}
		s.put(&stored{name: saidName(q.Name), said: &say}, time.Now().Add(q.Keep))
		same := was.text == say.text && (say.text == "" || was.owner == say.owner && was.token == say.token)
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
		left, err := s.left(name, r.said.owner)
		if left == 0 || r.said.text == "" {
			return out, err
		}
		return backend.Proclamation{
			Owner: r.said.owner, Token: r.said.token, Text: r.said.text, Remaining: left,
		}, nil
	})
}
