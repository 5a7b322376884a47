package memory

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// ticks implements [backend.TickStore].
type ticks struct{ *client }

// tick is the last claimed tick of a schedule, in ms since the epoch, and the id of its claim. After the first request
// it is the time of the request, without an id: the store does not know whether the ticks until then were claimed.
type tick struct {
	last  int64
	claim string
}

func tickName(name string) string { return "mortise:1:tick:{" + name + "}" }

// ClaimTick implements [backend.TickStore].
func (x ticks) ClaimTick(ctx context.Context, q backend.TickRequest) (backend.TickReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.TickReply, error) {
		r := s.find(tickName(q.Name))
		if r != nil && r.tick == nil {
			return backend.TickReply{}, wrongKind(r)
		}
		now, interval, offset := time.Now().UnixMilli(), q.Interval.Milliseconds(), q.Offset.Milliseconds()
		newest := now - (now-offset)%interval
		last := tick{last: now}
		if r != nil {
			last = *r.tick
		}
		first := newest - missed(q, time.Duration(now-newest)*time.Millisecond)*interval
		until := func(next int64) time.Duration { return time.Duration(max(next-now, 0)) * time.Millisecond }
		if last.claim == q.ID && last.last >= first {
			return backend.TickReply{Granted: true, Tick: time.UnixMilli(last.last), Next: until(last.last + interval)}, nil
		}
		due := max(first, last.last-(last.last-offset)%interval+interval)
		if r != nil && due > newest {
			return backend.TickReply{Next: until(due)}, nil
		}
		if r != nil {
			s.remove(r)
			last = tick{due, q.ID}
		}
		s.put(&stored{name: tickName(q.Name), tick: &last}, time.Now().Add(q.Keep()))
		if r == nil {
			return backend.TickReply{Next: until(due)}, nil
		}
		return backend.TickReply{Granted: true, Tick: time.UnixMilli(due), Next: until(due + interval)}, nil
	})
}

// missed returns how many ticks before the newest one may be claimed; -1 if not even the newest may. The newest tick
// was due age ago.
func missed(q backend.TickRequest, age time.Duration) int64 {
	switch {
	case q.Late == 0:
		return int64(q.Missed)
	case q.Late < age:
		return -1
	}
	return min(int64(q.Missed), int64((q.Late-age)/q.Interval))
}
