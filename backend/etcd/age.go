package etcd

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mortise-go/mortise/backend/cas"
)

// Etcd does not tell when a value was written. A value has an etcd lease of the client that wrote it, which is
// never renewed, and how long after asking for that lease the client sent the value. Three things then tell another
// client how long ago the value was sent, at least: - the age of the lease, by the clock of the member that leads;
// it counts seconds, and begins anew when the leader changes; - other values of the same lease that the client saw
// before: from each follows when the lease was asked for, at the latest; - and when the client saw the value
// itself.

const (
	// counts is how long the members count a lease, in seconds. Leases of locks that are longer end only for clients that
	// watch them.
	counts = 3600
	// renewed is the age from which on a client asks for another lease.
	renewed = 10 * time.Minute
	// drift is the part of a time by which two clocks may differ.
	drift = 500
	// remembered bounds the leases of other clients that are remembered.
	remembered = 4096
	// patience bounds the question for a lease's age.
	patience = time.Second
)

// header is what a value has before its data, with the stamp: the lease of its writer, how long after asking for the
// lease the value was sent, and when that was by this process's clock.
//
// A machine's monotonic clock stands still while the machine sleeps, so how long is said twice: at least, by that
// clock, and at most, by the clock that went on further.
type header struct {
	lease       int64
	least, most time.Duration
	sent        time.Time
}

// mark begins a value. It is no UTF-8.
const (
	mark   = 0xc1
	length = 1 + 4*8
)

// pack returns a swap's value.
func (h header) pack(q *cas.Swap) string {
	b := append(make([]byte, 0, length+len(q.Value)), mark)
	for _, n := range [...]int64{h.lease, int64(h.least), int64(h.most), int64(q.Stamp)} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return string(append(b, q.Value...))
}

// unpack reads a value. One that was not packed has no header.
func unpack(value []byte) (h header, stamp time.Duration, data []byte) {
	if len(value) < length || value[0] != mark {
		return h, 0, value
	}
	field := func(i int) int64 { return int64(binary.BigEndian.Uint64(value[1+8*i:])) }
	h.lease, h.least, h.most = field(0), time.Duration(field(1)), time.Duration(field(2))
	return h, time.Duration(field(3)), value[length:]
}

// began is when a lease was asked for, at the latest, as was known at a time.
type began struct{ at, known time.Time }

// ages is what a session knows of etcd leases.
type ages struct {
	mu    sync.Mutex
	seen  map[int64]began
	asks  sync.Mutex // is locked while the own lease is asked for
	own   int64
	asked time.Time
}

// ownLease is a lease of this session, and when it was asked for.
type ownLease struct {
	id    int64
	asked time.Time
}

// head returns the header of values that are sent now.
func (l ownLease) head(now time.Time) header {
	least, day := now.Sub(l.asked), byDay(l.asked, now)
	return header{l.id, least, max(least, day), now}
}

// byDay is what has passed by the clock of the day.
func byDay(from, to time.Time) time.Duration { return to.Round(0).Sub(from.Round(0)) }

// lease returns the session's lease.
func (a *ages) lease(ctx context.Context, c *clientv3.Client) (ownLease, error) {
	a.asks.Lock()
	defer a.asks.Unlock()
	now := time.Now()
	passed := now.Sub(a.asked)
	if slept := byDay(a.asked, now) - passed; a.own == 0 || passed > renewed || slept.Abs() > time.Second {
		r, err := c.Grant(ctx, counts)
		if err != nil {
			return ownLease{}, err
		}
		a.own, a.asked = int64(r.ID), now
		a.note(a.own, now, now)
	}
	return ownLease{a.own, a.asked}, nil
}

// note notes that a lease was asked for before a time, as is known now. It returns the earliest such time.
func (a *ages) note(lease int64, at, now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if was, has := a.seen[lease]; has {
		if was := was.at.Add(now.Sub(was.known) / drift); was.Before(at) {
			return was
		}
	}
	if len(a.seen) >= remembered {
		clear(a.seen)
	}
	a.seen[lease] = began{at, now}
	return at
}

// since returns how long ago a value with a header was sent, at least, that was received now.
func (a *ages) since(ctx context.Context, c *clientv3.Client, h header, now time.Time) time.Duration {
	a.mu.Lock()
	_, known := a.seen[h.lease]
	a.mu.Unlock()
	if !known {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if r, err := c.TimeToLive(ctx, clientv3.LeaseID(h.lease)); err == nil && r.TTL >= 0 {
			if age := time.Duration(r.GrantedTTL-r.TTL-1) * time.Second; age > 0 {
				told := time.Now() // and not now: the age is that of later
				a.note(h.lease, told.Add(-age+age/drift), told)
			}
		}
	}
	return max(0, now.Sub(a.note(h.lease, now.Add(-h.least), now))-h.most)
}
