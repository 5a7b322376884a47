package quorum

import (
	"errors"
	"sync"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
)

const (
	// suspected is for how long a store that failed is not waited for, and probed how often it is asked
	// meanwhile, as long as the others are a majority.
	suspected = 10 * time.Second
	probed    = 250 * time.Millisecond
)

// standing is what is known about a store: a call that contends for a lock must not hold a minority of it for as long
// as a dead store takes to fail.
type standing struct {
	mu     sync.Mutex
	err    error     // its last failure; nil after an answer
	failed time.Time // when that was
	asked  time.Time // when it was asked last, since
}

// suspects tells which stores failed lately; none if too few would be left.
func (q *Quorum) suspects() []bool {
	out, left := make([]bool, len(q.nodes)), len(q.nodes)
	for i := range q.standing {
		s := &q.standing[i]
		s.mu.Lock()
		out[i] = s.err != nil && time.Since(s.failed) < suspected
		s.mu.Unlock()
		if out[i] {
			left--
		}
	}
	if left < q.majority {
		clear(out)
	}
	return out
}

// probe tells whether a suspect is to be asked now, and otherwise how it failed.
func (s *standing) probe() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && time.Since(s.asked) < probed {
		return s.err
	}
	s.asked = time.Now()
	return nil
}

// heard notes what came of asking.
func (s *standing) heard(v vote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v.err == nil, errors.Is(v.err, fail.NotAcquired), errors.Is(v.err, fail.WrongKind):
		s.err = nil
	case v.err != errOuterAway && v.err != s.err: // that was told by probe
		s.err, s.failed = v.err, time.Now()
	}
}
