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
	b, _ := binary.Append([]byte{mark}, binary.BigEndian, [...]int64{
		h.lease, int64(h.least), int64(h.most), int64(q.Stamp),
	})
	return string(append(b, q.Value...))
}

// unpack reads a value. One that was not packed has no header.
func unpack(value []byte) (h header, stamp time.Duration, data []byte) {
	var f [4]int64
	if len(value) < length || value[0] != mark {
		return h, 0, value
	}
	_, _ = binary.Decode(value[1:], binary.BigEndian, &f) // is long enough
	return header{lease: f[0], least: time.Duration(f[1]), most: time.Duration(f[2])}, time.Duration(f[3]), value[length:]
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

// head returns the header of values that are sent now, with the session's lease.
func (a *ages) head(ctx context.Context, c *clientv3.Client) (header, error) {
	a.asks.Lock()
	defer a.asks.Unlock()
	now := time.Now()
	least, byDay := now.Sub(a.asked), now.Round(0).Sub(a.asked.Round(0))
	if a.own == 0 || least > renewed || (byDay-least).Abs() > time.Second { // has slept
		r, err := c.Grant(ctx, counts)
		if err != nil {
			return header{}, err
		}
		a.own, a.asked, least, byDay = int64(r.ID), now, 0, 0
		a.note(a.own, now, now)
	}
	return header{a.own, least, max(least, byDay), now}, nil
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
