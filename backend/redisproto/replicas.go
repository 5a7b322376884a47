package redisproto

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/scripts"
)

// Replicator is an adapter with the ability to wait for replicas.
type Replicator interface {
	// Replicates reports whether its client has this ability. Replicates does no I/O.
	Replicates() bool
	// Replicated returns the commands for a single call of a method with a single script. The
	// script goes out as EVAL, followed by WAIT on the same connection and in the same round trip:
	// WAIT counts the replicas with the writes of its own connection, and blocks the connection, so
	// the connection is not shared. The result of WAIT is in w when the call returns. The caller
	// cannot leave the call.
	Replicated(w *Wait) Commands
}

// Wait is a WAIT behind a script.
type Wait struct {
	Replicas int           // at least 1
	Timeout  time.Duration // whole milliseconds, at least 1

	// Had is the number of replicas with the script's writes, and Err the reason if the number is
	// unknown. Both are meaningless after a failed script.
	Had int64
	Err error
}

// replyTime is how long a server may take to answer, WAIT's own time not counted.
const replyTime = 3 * time.Second

// Within bounds a round trip, for a client library without such a bound.
func (w *Wait) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, w.Timeout+replyTime)
}

// Source is the text of a script. A script with WAIT behind is sent as text: WAIT would delay the
// reply that the server does not know the script.
func Source(sha string) string { return sources()[sha] }

var sources = sync.OnceValue(func() map[string]string {
	all := make(map[string]string)
	for _, s := range scripts.All {
		all[s.SHA1] = s.Source
	}
	return all
})

// Redirected reports whether err, the reply of a cluster's node to a script, names another node to
// ask, and if so, whether the other node needs ASKING before.
func Redirected(text string) (addr string, ask, redirected bool) {
	var slot int
	if n, _ := fmt.Sscanf(text, "MOVED %d %s", &slot, &addr); n == 2 {
		return addr, false, true
	}
	if n, _ := fmt.Sscanf(text, "ASK %d %s", &slot, &addr); n == 2 {
		return addr, true, true
	}
	return "", false, false
}

// by is what sends the script of a request that wants replicas, or does not.
func (s *core) by(n backend.Replication) (Commands, *Wait) {
	if r, can := s.adapter.(Replicator); can && n.Replicas > 0 {
		w := &Wait{Replicas: n.Replicas, Timeout: n.ReplicaWait}
		return r.Replicated(w), w
	}
	return s.adapter, nil
}

// had is how many replicas have what a script wrote, if it did. Where that is not known, the same
// request will tell.
func (s *core) had(w *Wait, wrote bool) (int, error) {
	switch {
	case w == nil || !wrote:
		return 0, nil
	case w.Err != nil:
		f := backend.FaultOf(s.fault(w.Err))
		f.Err, f.MayHaveRun = fmt.Errorf("waiting for replicas: %w", f.Err), true
		return 0, &f
	}
	return int(w.Had), nil
}

// replicated settles reply, and err, what an acquisition came to; it does nothing where no replicas were asked for.
func (s *core) replicated(name string, w *Wait, reply *backend.AcquireReply, err error) error {
	if w == nil {
		return err
	}
	if err != nil || reply.Granted {
		s.seen.Forget(name)
	}
	if err == nil {
		*reply = s.verified(*reply)
		reply.Replicas, err = s.had(w, reply.Granted)
	}
	return err
}
