package redisproto

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/scripts"
)

// Replicator may be implemented by an adapter that can wait for replicas.
type Replicator interface {
	// Replicates reports whether the client can wait for replicas. Replicates does no I/O.
	Replicates() bool
	// Replicated returns the commands for one call of a method that sends a single script. The
	// script goes out as EVAL, followed by WAIT on the same connection and in the same round trip.
	// WAIT counts the replicas that have the writes of its connection, and blocks the connection,
	// so no other call may use the connection meanwhile. The result of WAIT is in w when the method
	// returns. The caller cannot leave.
	Replicated(w *Wait) Commands
}

// Wait is a WAIT after a script: its arguments and its result.
type Wait struct {
	Replicas int           // at least 1
	Timeout  time.Duration // whole milliseconds, at least 1

	// Had is the number of replicas that have the script's writes. Err is why the number is unknown;
	// nil if it is known. Neither has a meaning if the script failed.
	Had int64
	Err error
}

// replyTime is how long a server may take to answer, in addition to the timeout of WAIT.
const replyTime = 3 * time.Second

// Queueing is how long an adapter may let a script wait because other scripts and their WAITs occupy the connections.
const Queueing = 5 * time.Second

// Queued returns the error of a script that was not sent within [Queueing]; n is how many others are in flight.
func Queued(n int) error {
	return &backend.Fault{
		Err: fmt.Errorf("%d scripts with WAIT occupy their half of the connection pool already, since %v", n, Queueing),
		Remedy: "find out why the replicas do not acknowledge in time, give WithReplicas a shorter timeout, ask for fewer " +
			"locks at a time, or raise PoolSize",
		Temporary: true,
	}
}

// Within returns a context that bounds the round trip, for a client library without such a bound.
func (w *Wait) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, w.Timeout+replyTime)
}

// Source returns the text of a script. A script that is followed by WAIT is sent as text: if the server
// did not know its SHA-1, that reply would come only after WAIT.
func Source(sha string) string { return sources()[sha] }

var sources = sync.OnceValue(func() map[string]string {
	all := make(map[string]string)
	for _, s := range scripts.All {
		all[s.SHA1] = s.Source
	}
	return all
})

// Redirected parses the error text of a cluster's node; from is the node's address, "" if it is unknown. It
// reports whether the node redirects the script to the node at addr, and whether ASKING must be sent to that
// node before.
func Redirected(text, from string) (addr string, ask, redirected bool) {
	var slot int
	if n, _ := fmt.Sscanf(text, "MOVED %d %s", &slot, &addr); n == 2 {
		return dialable(addr, from), false, true
	}
	if n, _ := fmt.Sscanf(text, "ASK %d %s", &slot, &addr); n == 2 {
		return dialable(addr, from), true, true
	}
	return "", false, false
}

// dialable returns the address of a redirection as dialers take it: a server writes an IPv6 address without brackets,
// and no host if the host is that of the node which redirects.
func dialable(addr, from string) string {
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 {
		return addr
	}
	host := strings.Trim(addr[:colon], "[]")
	if host == "" {
		host, _, _ = net.SplitHostPort(from)
	}
	return net.JoinHostPort(host, addr[colon+1:])
}

// by returns the commands for a request: with a WAIT if the request has a Replication, otherwise the adapter's.
func (s *core) by(n backend.Replication) (Commands, *Wait) {
	if r, can := s.adapter.(Replicator); can && n.Replicas > 0 {
		w := &Wait{Replicas: n.Replicas, Timeout: n.ReplicaWait}
		return r.Replicated(w), w
	}
	return s.adapter, nil
}

// had returns how many replicas have the writes of a script; wrote tells whether the script wrote. If the number is
// unknown, had returns an error: the same request, sent again, will tell.
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

// replicated adds the number of replicas to the reply of an acquisition that was sent with w; w is nil if the request
// has no Replication.
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
