package engine

import (
	"fmt"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/localqueue"
)

// lacking is an attempt with WithReplicas that was released because too few replicas acknowledged it. Attempts fail one
// after the other, and each keeps the lock from the calls behind it, for which no owner holds it. A call that waited
// meanwhile, and wants no fewer replicas within no longer a time, fails with the same error instead of an attempt of
// its own.
type lacking struct {
	wanted Replicas
	err    error
	joined uint64 // the number of the newest ticket at the time
}

// concerns reports whether a call fails because of the attempt.
func (l *lacking) concerns(r Replicas, t *localqueue.Ticket) bool {
	return l != nil && r.N >= l.wanted.N && r.Timeout <= l.wanted.Timeout && t.JoinedBy(l.joined)
}

// lack notes an attempt that had too few replicas, and wakes the waiters. It is called with the mutex.
func (w *waiters) lack(wanted Replicas, err error) {
	f := backend.FaultOf(err)
	f.Err = fmt.Errorf("a call before this one failed: %w", f.Err)
	w.lacks = &lacking{wanted, &f, w.Joined()}
	w.WakeAll()
}
