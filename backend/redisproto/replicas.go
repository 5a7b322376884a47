package redisproto

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/scripts"
)

// Replicator is an adapter that can have replicas waited for.
type Replicator interface {
	// Replicates tells whether its client can. It does no I/O.
	Replicates() bool
	// Replicated is for one call of a method that sends one script, as EVAL, which is then followed by WAIT
	// on the same connection and in the same round trip: WAIT counts the replicas that have what its own
	// connection wrote, and holds that connection up, which therefore is not shared. What WAIT came
	// to is in w when the call returns. The call cannot be left.
	Replicated(w *Wait) Commands
}

// Wait is a WAIT behind a script.
type Wait struct {
	Replicas int           // at least one
	Timeout  time.Duration // whole milliseconds, at least one

	// Had is how many replicas had what the script wrote, and Err why that is not known. They
	// say nothing where the script failed.
	Had int64
	Err error
}

// replyTime is how long a server may take to answer, WAIT's own time not counted.
const replyTime = 3 * time.Second

// Within bounds a round trip, for a client library that does not do so by itself.
func (w *Wait) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, w.Timeout+replyTime)
}

// Source is the text of a script. A script with WAIT behind it is sent as such: WAIT would
// hold up the news that the server does not know the script.
func Source(sha string) string { return sources()[sha] }

var sources = sync.OnceValue(func() map[string]string {
	all := make(map[string]string)
	for _, s := range scripts.All {
		all[s.SHA1] = s.Source
	}
	return all
})

// Redirected tells whether err, the reply of a cluster's node to a script, names the node that is to be
// asked instead, and if so, whether that one needs ASKING before.
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
