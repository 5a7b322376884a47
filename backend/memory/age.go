package memory

import (
	"time"

	"github.com/mortise-go/mortise/backend"
)

var _ backend.AgeSession = (*session)(nil)

// KnowsAge implements [backend.AgeSession]. A store that was made just now has lost nothing,
// so it is of any age until [Store.Flush].
func (x *session) KnowsAge() bool { return true }

// young is for how long s is still too young for q; zero if it is old enough.
func (s *Store) young(q backend.AcquireRequest, r *record) time.Duration {
	if q.Age == nil || s.lost.IsZero() || r != nil && r.of(q.Owner) {
		return 0
	}
	end := s.lost.Add(q.Age.Least)
	if !time.Now().Before(end) {
		return 0
	}
	return remaining(end)
}
