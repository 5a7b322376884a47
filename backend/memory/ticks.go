package memory

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// ticks implements [backend.TickStore].
type ticks struct{ *client }

func tickName(name string) string { return "mortise:1:tick:{" + name + "}" }

// ClaimTick implements [backend.TickStore].
func (x ticks) ClaimTick(ctx context.Context, q backend.TickRequest) (backend.TickReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.TickReply, error) {
		r := s.find(tickName(q.Name))
		if r != nil && r.tick == nil {
			return backend.TickReply{}, wrongKind(r)
		}
		var last record.Tick
		if r != nil {
			last = *r.tick
		}
		was, st := last, &record.Step{Name: q.Name, Now: time.Since(s.epoch)}
		reply := last.Claim(st, q, time.Now().UnixMilli())
		if last != was {
			if r != nil {
				s.remove(r)
			}
			s.put(&stored{name: tickName(q.Name), tick: &last}, s.epoch.Add(last.Until))
		}
		return reply, nil
	})
}
