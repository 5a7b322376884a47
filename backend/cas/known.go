package cas

import (
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// known has what the session's remembered requests came to, for backend.Remembered at least. The value of a name needs
// to remember a request only until its session has learned what it came to: otherwise a busy count would carry the
// requests of two minutes. A request is repeated by the session that has sent it, and by no other.
type known struct {
	mu sync.Mutex
	// now and before are two generations; began is when now began.
	now, before map[request]int64
	began       time.Time
}

type request struct{ name, id string }

// note notes what a request came to.
func (k *known) note(q request, took int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now == nil || time.Since(k.began) > backend.Remembered {
		k.before, k.now, k.began = k.now, make(map[request]int64), time.Now()
	}
	k.now[q] = took
}

// of returns what a request came to.
func (k *known) of(q request) (took int64, is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if took, is = k.now[q]; !is {
		took, is = k.before[q]
	}
	return took, is
}

// settle takes the session's requests that are known out of a name.
func (k *known) settle(n *record.Name, s *record.Step) {
	n.Did = slices.DeleteFunc(n.Did, func(d record.Did) bool {
		if d.Session != s.By {
			return false
		}
		_, is := k.of(request{s.Name, d.ID})
		return is
	})
}
