package redisproto

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// tickKey is the key of a schedule's last claimed tick, with the ID of the claim.
func tickKey(name string) string { return companion("tick", name) }

// ClaimTick implements [backend.TickStore].
func (s ticks) ClaimTick(ctx context.Context, r backend.TickRequest) (out backend.TickReply, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	reply, err := s.adapter.ClaimTick(ctx, ClaimTickKeys{Tick: tickKey(r.Name)}, ClaimTickArgs{
		ID: r.ID, Interval: r.Interval, Offset: r.Offset, Missed: int64(r.Missed), Late: r.Late, Keep: r.Keep(),
	})
	if err != nil {
		return out, s.fault(err)
	}
	if len(reply) != 3 || reply[0] != 0 && reply[0] != 1 || reply[2] < 0 {
		return out, strange("claim_tick", reply)
	}
	out.Next = millis(min(reply[2], maxMillis))
	if out.Granted = reply[0] == 1; out.Granted {
		out.Tick = time.UnixMilli(reply[1])
	}
	return out, nil
}
