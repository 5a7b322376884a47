package redisproto

import (
	"context"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/heldcache"
)

// refusedByCache reports whether r may be refused by the held cache, with that reply.
func refusedByCache(s *core, r backend.AcquireRequest) (reply backend.AcquireReply, held bool) {
	if !r.Unasked || !s.adapter.Features().Tracking {
		return reply, false
	}
	now := time.Now()
	a := s.seen.Held(r.Name, now)
	if a.Tick {
		tick(s, now)
	}
	return backend.AcquireReply{Remaining: a.Remaining, Rest: a.Rest}, a.Held
}

// tick sends PING over the tracking connection: when the reply arrives, all invalidations before have arrived. A
// cluster has several tracking connections. There the cache gets no ticks, and a name is asked for again.
func tick(s *core, now time.Time) {
	sent := !s.adapter.Features().Cluster && s.reads.start(func() {
		s.seen.Tick(now, s.adapter.Ping(context.Background()) == nil)
	})
	if !sent {
		s.seen.Tick(now, false)
	}
}

// refusedElsewhere notes that a connection without tracking was refused a name. If the name was refused shortly before,
// too, the held cache learns of its holder in the background: the caller has its answer, and must not wait for a
// tracking connection that may hang.
func refusedElsewhere(s *core, name string) {
	if !s.seen.RefusedElsewhere(name, time.Now()) {
		return
	}
	s.reads.start(func() {
		query, sent := s.seen.Begin(name), time.Now()
		record, err := s.inspect(context.Background(), name)
		if err != nil || !record.Held || !s.adapter.Features().Tracking {
			s.seen.End(query)
			return
		}
		s.seen.Refused(query, sent, record.Remaining)
	})
}

// reads are the requests of the held cache itself, in the background. They end with their replies, or with the adapter.
type reads struct {
	mu      sync.Mutex
	closed  bool
	running int
	wg      sync.WaitGroup
}

// readsMost bounds the number of requests of the held cache that await their replies.
const readsMost = 64

// start sends a request in the background. It reports false, and sends nothing, if too many await their replies, or
// after close.
func (r *reads) start(send func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.running == readsMost {
		return false
	}
	r.running++
	r.wg.Go(func() {
		send()
		r.mu.Lock()
		r.running--
		r.mu.Unlock()
	})
	return true
}

func (r *reads) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
}

// learning sends an acquisition, and enters its outcome into the held cache if the connection tracks. plain returns the
// AcquireReply in a reply.
func learning[R any](s *core, name string, plain func(R) backend.AcquireReply, send func() (R, error)) (R, error) {
	if !s.adapter.Features().Tracking {
		return send()
	}
	query, sent := s.seen.Begin(name), time.Now()
	reply, err := send()
	if left := leftIn[R](err); left != nil {
		return reply, behind(left, func(reply R, err error) (R, error) {
			learn(s, query, sent, plain(reply), err)
			return reply, err
		})
	}
	learn(s, query, sent, plain(reply), err)
	return reply, err
}

// learn enters the outcome of an acquisition into the held cache.
func learn(s *core, query heldcache.Query, sent time.Time, reply backend.AcquireReply, err error) {
	switch {
	case err != nil:
		s.seen.End(query)
	case reply.Granted:
		s.seen.Free(query)
	case reply.Remaining == 0: // a free fair lock, with other owners before in the queue
		s.seen.End(query)
	case !s.adapter.Features().Tracking: // the connection turned out to have no tracking
		s.seen.End(query)
	default:
		s.seen.Refused(query, sent, reply.Remaining)
	}
}
