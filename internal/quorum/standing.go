package quorum

import (
	"errors"
	"sync"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
)

const (
	// suspected is for how long after a failure a store is a suspect: calls do not wait for its answer while the other
	// stores are a majority. probed is the least time between two requests to a suspect.
	suspected = 10 * time.Second
	probed    = 250 * time.Millisecond
)

// standing is the state of a store: whether it failed lately. A contending call must not keep the lock in a minority
// of the stores for as long as a dead store takes to fail.
type standing struct {
	mu     sync.Mutex
	err    error     // the last failure; nil after an answer
	failed time.Time // the time of the failure
	asked  time.Time // the last time that probe let a call ask
}

// suspects reports by index which stores failed lately; none if the others are not a majority.
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

// probe returns nil if a suspect is to be asked now, and otherwise its last failure.
func (s *standing) probe() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && time.Since(s.asked) < probed {
		return s.err
	}
	s.asked = time.Now()
	return nil
}

// heard notes the vote of the store.
func (s *standing) heard(v vote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v.err == nil, errors.Is(v.err, fail.NotAcquired), errors.Is(v.err, fail.WrongKind):
		s.err = nil
	case v.err != errOuterAway && v.err != s.err: // probe returns s.err: no new failure
		s.err, s.failed = v.err, time.Now()
	}
}
