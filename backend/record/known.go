package record

import (
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Known has what remembered requests came to, for backend.Remembered: those of a session, or of a store in the same
// process. The zero Known has none.
//
// The value of a name elsewhere needs to remember a request only until its session has learned what it came to:
// otherwise a busy count would carry the requests of two minutes. There a request is repeated by the session that has
// sent it, and by no other.
type Known struct {
	mu sync.Mutex
	// now and before are two generations; began is when now began.
	now, before map[request]outcome
	began       time.Time
}

type request struct{ name, id string }

// outcome is what a request came to, and when.
type outcome struct {
	took int64
	at   time.Time
}

// note notes what a request came to.
func (k *Known) note(q request, took int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := time.Now()
	if k.now == nil || at.Sub(k.began) > backend.Remembered {
		k.before, k.now, k.began = k.now, make(map[request]outcome), at
	}
	k.now[q] = outcome{took, at}
}

// of returns what a request came to.
func (k *Known) of(q request) (took int64, is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, is := k.now[q]
	if !is {
		o, is = k.before[q]
	}
	return o.took, is && q.id != "" && time.Since(o.at) < backend.Remembered
}

// settle takes the session's requests that are known out of a name.
func (k *Known) settle(n *Name, s *Step) {
	n.Did = slices.DeleteFunc(n.Did, func(d Did) bool {
		if d.Session != s.By {
			return false
		}
		_, is := k.of(request{s.Name, d.ID})
		return is
	})
}
