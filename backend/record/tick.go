package record

import (
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Tick is the last claimed tick of a schedule. After the first request it is the time of the request, without an ID:
// the store does not know whether the ticks until then were claimed. The zero Tick is none.
type Tick struct {
	// Last is in ms since the Unix epoch.
	Last int64
	ID   string
	// Until is when it is forgotten.
	Until Time
}

// Claim is [backend.TickStore].ClaimTick at a time in ms since the Unix epoch.
func (t *Tick) Claim(s *Step, q backend.TickRequest, now int64) backend.TickReply {
	interval, offset := q.Interval.Milliseconds(), q.Offset.Milliseconds()
	newest := now - (now-offset)%interval
	is, last := *t != Tick{}, *t
	if !is {
		last.Last = now
	}
	first := newest - missed(q, time.Duration(now-newest)*time.Millisecond)*interval
	until := func(next int64) time.Duration { return time.Duration(max(next-now, 0)) * time.Millisecond }
	if last.ID == q.ID && last.Last >= first {
		return backend.TickReply{Granted: true, Tick: time.UnixMilli(last.Last), Next: until(last.Last + interval)}
	}
	due := max(first, last.Last-(last.Last-offset)%interval+interval)
	switch {
	case !is:
		*t = Tick{Last: now, Until: s.Now + q.Keep()}
		return backend.TickReply{Next: until(due)}
	case due > newest:
		return backend.TickReply{Next: until(due)}
	}
	*t = Tick{due, q.ID, s.Now + q.Keep()}
	return backend.TickReply{Granted: true, Tick: time.UnixMilli(due), Next: until(due + interval)}
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
