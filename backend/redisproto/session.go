package redisproto

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/heldcache"
	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
	"github.com/mortise-go/mortise/internal/wire"
)

// renewBatch is the most owners, or permits, that one script renews. It bounds how long a renewal occupies the server:
// some 0.3 ms.
const renewBatch = 256

// core is the part of a session that all kinds of locks share.
type core struct {
	adapter Adapter
	handler backend.Handler
	subs    pubsub.Watcher
	seen    *heldcache.Cache
	second  *heldcache.Second[Commands]
	beside  Commands // over the second connection: callers can leave scripts
	joint   *joint
	nodes   nodes
	marks
	tag    string // the name of the session in queues
	grants bool   // releases are to grant the lock to the session's entries
	pairs  pairs

	reads    reads           // of the held cache
	loading  *Lazy[struct{}] // loads the scripts
	greeting *Lazy[struct{}] // asks for the server's version and mode; nil if the adapter cannot
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	// sharding sets sharded at the first command; nil if pub/sub is certainly not sharded.
	sharding *Lazy[bool]
}

// marks is what a session knows of itself.
type marks struct {
	closed  atomic.Bool
	sides   atomic.Bool // the session has used a read-write lock
	sharded atomic.Bool // pub/sub is sharded
	single  atomic.Bool // the server is no cluster, though its client is one of a cluster
}

// The optional interfaces of the store. Each type is the core with the methods of an interface.
type (
	readWrite  struct{ *core }
	fairLock   struct{ *core }
	delegated  struct{ *core }
	agedLock   struct{ *core }
	multiLock  struct{ *core }
	queue      struct{ *core }
	enrolments struct{ *core }
	partitions struct{ *core }
	leaver     struct{ *core }
	ticks      struct{ *core }
	proclaimed struct{ *core }
	checks     struct{ *core }
	operator   struct{ *core }
	busy       struct{ *core }
)

// session is the session of one client, with the methods of plain locks. Each operation is one command, except for
// Renew and ReleaseAll (a command for each renewBatch, on a cluster for each slot), the first Ping (one more for each
// script), and a refusal by the held cache (none). A script that the server does not know yet costs one command more,
// and so does HELLO at the first operation of a session.
type session struct{ *core }

// Capabilities implements [backend.Store].
func (s *session) Capabilities() backend.Capabilities {
	c := s.core
	r, replicates := s.adapter.(Replicator)
	semaphores := countingSemaphores{counters{c}}
	return backend.Capabilities{
		ReadWrite: readWrite{c}, Fair: fairLock{c}, Delegation: delegated{c}, Semaphores: permits{semaphores},
		CountingSemaphores: semaphores, CountDownLatches: latches{counters{c}}, Batch: multiLock{c}, Queue: queue{c},
		Enrolments: enrolments{c}, Ticks: ticks{c}, Proclamations: proclaimed{c},
		Check: checks{c}, Busy: busy{c}, Operator: operator{c}, List: lister(c),
		Grants: c.grants,
		Age:    agedLock{c}, Partitions: partitions{c}, Leaver: leaver{c}, Replicas: replicates && r.Replicates(),
	}
}

// Acquire implements [backend.Store]. Acquisitions are sent without tracking if the client can: those without a fencing
// token of several callers together in one script, that of a lone caller by itself.
func (s *session) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.AcquireReply{}, err
	}
	if r.Replicas > 0 {
		return s.acquireReplicated(ctx, r)
	}
	if reply, held := refusedByCache(s.core, r); held {
		return reply, nil
	}
	f := s.adapter.Features()
	if f.Leaves && (s.second.Apart() || !f.Tracking) {
		var reply backend.AcquireReply
		var err error
		if r.Fenced {
			reply, err = s.acquireFencedApart(ctx, r)
		} else { // as acquireFencedApart, without its frame: test/faults bounds them
			var left int64
			if c, beside, leaves := s.alone(); s.joint.Lead(ctx, leaves) {
				defer s.joint.Led() // deferred: the client library may panic
				k, a := AcquireKeys{Lock: r.Name}, AcquireArgs{Owner: r.Owner, Lease: r.Lease}
				if left, err = c.Acquire(ctx, k, a); beside && failed[int64](s.core, err) {
					left, err = s.adapter.Acquire(ctx, k, a)
				}
			} else {
				left, err = s.joint.do(ctx, JointItem{Lock: r.Name, Channel: r.Name, Owner: r.Owner, Lease: r.Lease})
			}
			reply, err = s.acquiredPlain(left, err)
		}
		if err == nil && !reply.Granted && f.Tracking && r.Unasked {
			refusedElsewhere(s.core, r.Name)
		}
		return s.verified(reply), err
	}
	reply, err := learning(s.core, r.Name, func(r backend.AcquireReply) backend.AcquireReply { return r },
		func() (backend.AcquireReply, error) { return s.acquire(ctx, s.adapter, r) })
	return s.verified(reply), err
}

// acquireFencedApart sends a fenced acquisition over the second connection, if there is one.
func (s *session) acquireFencedApart(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	c, beside := s.second.Commands()
	if beside {
		c = s.beside
	}
	k, a := AcquireFencedKeys{Lock: r.Name, Token: tokenKey(r.Name)}, AcquireFencedArgs{Owner: r.Owner, Lease: r.Lease}
	reply, err := c.AcquireFenced(ctx, k, a)
	if beside && failed[[]int64](s.core, err) {
		reply, err = s.adapter.AcquireFenced(ctx, k, a)
	}
	return s.acquiredFenced(reply, err)
}

// alone returns the commands of a lone caller, which sends by itself. beside: they go over another connection than the
// adapter's. leaves: the caller can leave them.
func (s *core) alone() (c LoneCommands, beside, leaves bool) {
	c, beside = s.second.Commands()
	if s.joint.loner == nil || !beside && s.second.Apart() { // the second connection failed lately
		return c, beside, false
	}
	if lone := s.joint.loner.Lone(); lone != nil {
		return lone, true, true
	}
	return c, beside, false
}

// failed notes the error of a command over another connection, whose reply is an R, and reports whether to send the
// command again by the adapter.
func failed[R any](s *core, err error) (again bool) {
	return leftIn[R](err) == nil && s.second.Failed(err)
}

// verifyAfter is the AcquireReply.VerifyAfter of grants: the verification reads the record over the tracking
// connection, and from then on the server reports changes of the record. Most locks are released before, and cost the
// server no tracking.
const verifyAfter = 250 * time.Millisecond

// verified sets VerifyAfter in the reply to a request that the server has not tracked.
func (s *core) verified(reply backend.AcquireReply) backend.AcquireReply {
	if reply.Granted && s.adapter.Features().Tracking {
		reply.VerifyAfter = verifyAfter
	}
	return reply
}

// leftIn returns the *backend.Left in err; nil if err is another error, or nil.
func leftIn[R any](err error) *backend.Left[R] {
	if err == nil {
		return nil
	}
	left, _ := errors.AsType[*backend.Left[R]](err)
	return left
}

// behind returns a backend.Left whose outcome is the result of then, called with the outcome of left. It is called only
// for calls that were left: the closure then costs an allocation.
func behind[R, S any](left *backend.Left[R], then func(R, error) (S, error)) error {
	return &backend.Left[S]{Wait: func() (S, error) { return then(left.Wait()) }}
}

// Leaves implements [backend.Leaver]: callers can leave the operations of plain and delegated locks.
func (s leaver) Leaves(k backend.Kind) bool {
	return (k == backend.KindLock || k == backend.KindDelegated) && s.adapter.Features().Leaves
}

// acquire sends the script of an acquisition by c.
func (s *session) acquire(ctx context.Context, c Commands, r backend.AcquireRequest) (backend.AcquireReply, error) {
	args := AcquireArgs{Owner: r.Owner, Lease: r.Lease}
	if r.Fenced {
		return s.acquiredFenced(c.AcquireFenced(ctx, AcquireFencedKeys{Lock: r.Name, Token: tokenKey(r.Name)},
			AcquireFencedArgs(args)))
	}
	reply, err := c.Acquire(ctx, AcquireKeys{Lock: r.Name}, args)
	return s.acquiredPlain(reply, err)
}

// acquireReplicated sends an acquisition with WAIT. The held cache does not learn from a refusal, which comes over a
// connection of its own.
func (s *session) acquireReplicated(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	if reply, held := refusedByCache(s.core, r); held {
		return reply, nil
	}
	c, w := s.by(r.Replication)
	reply, err := s.acquire(ctx, c, r)
	return reply, s.replicated(r.Name, w, &reply, err)
}

func (s *session) acquiredPlain(reply int64, err error) (backend.AcquireReply, error) {
	if left := leftIn[int64](err); left != nil {
		return backend.AcquireReply{}, behind(left, s.acquired)
	}
	return s.acquired(reply, err)
}

func (s *session) acquiredFenced(reply []int64, err error) (backend.AcquireReply, error) {
	if left := leftIn[[]int64](err); left != nil {
		return backend.AcquireReply{}, behind(left, s.acquiredFenced)
	}
	switch {
	case err != nil:
		return backend.AcquireReply{}, s.faultOf(err, true)
	case len(reply) != 2:
		return backend.AcquireReply{}, strange("acquire_fenced", reply)
	}
	out, err := s.acquired(reply[0], nil)
	out.Token = reply[1]
	return out, err
}

func (s *session) acquired(left int64, err error) (backend.AcquireReply, error) {
	return s.answer("acquire", left, err)
}

// SetHolds implements [backend.Store].
func (s *session) SetHolds(ctx context.Context, r backend.HoldsRequest) (backend.HoldsReply, error) {
	return s.setHolds(ctx, r, r.Owner)
}

// setHolds sets the hold count in the given field of the record.
func (s *core) setHolds(ctx context.Context, r backend.HoldsRequest, field string) (backend.HoldsReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.HoldsReply{}, err
	}
	c, w := s.by(r.Replication)
	reply, err := c.Reenter(ctx, ReenterKeys{Lock: r.Name, Token: tokenKey(r.Name)}, ReenterArgs{
		Owner:  field,
		Holds:  int64(r.Holds),
		Lease:  r.Lease,
		Fenced: r.Fenced,
		Track:  s.adapter.Features().Tracking,
	})
	s.seen.Forget(r.Name)
	if err != nil {
		return backend.HoldsReply{}, s.faultOf(err, r.Fenced)
	}
	if len(reply) != 2 || reply[0] != 0 && reply[0] != 1 {
		return backend.HoldsReply{}, strange("reenter", reply)
	}
	replicas, err := s.had(w, reply[0] == 1)
	if err != nil {
		return backend.HoldsReply{}, err
	}
	return backend.HoldsReply{Held: reply[0] == 1, Token: reply[1], Replicas: replicas}, nil
}

// Release implements [backend.Store].
func (s *session) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.ReleaseReply{}, err
	}
	if r.Undo && s.grants {
		held, err := queue{s.core}.leave(ctx, backend.LeaveEntryRequest{Name: r.Name, Owner: r.Owner})
		return backend.ReleaseReply{Held: held}, err
	}
	var reply int64
	var err error
	k, a := ReleaseKeys{Lock: r.Name, Channel: channelOf(r.Name)}, ReleaseArgs{Owner: r.Owner, Keep: int64(r.Keep)}
	if together := r.Keep == 0 && !r.Undo && s.adapter.Features().Leaves; !together {
		a.Publish = s.publish()
		reply, err = s.adapter.Release(ctx, k, a)
	} else if c, beside, leaves := s.alone(); s.joint.Lead(ctx, leaves) {
		defer s.joint.Led()
		a.Publish = commandPublish
		if reply, err = c.Release(ctx, k, a); beside && failed[int64](s.core, err) {
			reply, err = s.adapter.Release(ctx, k, a)
		}
	} else {
		reply, err = s.joint.do(ctx, JointItem{Lock: k.Lock, Channel: k.Channel, Owner: r.Owner})
	}
	return s.releaseReply(r.Name, "release", reply, err)
}

// releaseReply decodes the reply of a release that callers can leave.
func (s *core) releaseReply(name, script string, reply int64, err error) (backend.ReleaseReply, error) {
	if left := leftIn[int64](err); left != nil {
		return backend.ReleaseReply{}, behind(left, func(reply int64, err error) (backend.ReleaseReply, error) {
			return s.releaseReply(name, script, reply, err)
		})
	}
	held, err := s.wrote(name, script, reply, err)
	return backend.ReleaseReply{Held: held}, err
}

// ForceRelease implements [backend.Store].
func (s *session) ForceRelease(ctx context.Context, r backend.ForceRequest) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	reply, err := s.adapter.ForceRelease(ctx,
		ForceReleaseKeys{Lock: r.Name, Channel: channelOf(r.Name), Fair: queueKey(r.Name)},
		ForceReleaseArgs{Publish: s.publish(), Owner: r.Owner})
	return s.wrote(r.Name, "force_release", reply, err)
}

// mayFree removes a lock from the held cache, after a script with the error err that may have freed the lock. It
// returns err.
func mayFree(seen *heldcache.Cache, name string, err error) error {
	switch {
	case err == nil:
		seen.Freed(name)
	case backend.FaultOf(err).MayHaveRun:
		seen.Exclude(name, time.Now())
	}
	return err
}

// wrote decodes the reply of a script that may have freed a lock: 0 or 1.
func (s *core) wrote(name, script string, reply int64, err error) (bool, error) {
	if err := mayFree(s.seen, name, s.fault(err)); err != nil {
		return false, err
	}
	if reply != 0 && reply != 1 {
		return false, strange(script, reply)
	}
	return reply == 1, nil
}

// Renew implements [backend.Store].
func (s *session) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	renewal[RenewItem, RenewArgs]{"renew", s.adapter.Renew, func(r backend.RenewRequest) (RenewItem, error) {
		return RenewItem{Lock: r.Name, Owner: r.Owner, Lease: r.Lease, Exact: r.Exact, Held: r.Had}, nil
	}, nil}.of(ctx, s.core, in, out)
}

// renewal renews leases of a kind: send sends the script for items, and item makes an item of a request. size is how
// much of a batch the lease of an owner takes; nil: one.
type renewal[I any, A ~struct{ Track bool }] struct {
	script string
	send   func(context.Context, A, []I, []BatchReply)
	item   func(backend.RenewRequest) (I, error)
	size   func(owner string) int
}

// of renews the leases in, in batches of renewBatch, one after the other.
func (x renewal[I, A]) of(ctx context.Context, s *core, in []backend.RenewRequest, out []backend.RenewResult) {
	for n := 0; len(in) > 0; in, out = in[n:], out[n:] {
		n = x.batch(in)
		refused := s.ready(ctx)
		items, at := make([]I, 0, n), make([]int, 0, n)
		for i, r := range in[:n] {
			item, err := x.item(r)
			if out[i] = (backend.RenewResult{Err: cmp.Or(refused, err)}); out[i].Err == nil {
				items, at = append(items, item), append(at, i)
			}
		}
		if len(items) == 0 {
			continue
		}
		replies := make([]BatchReply, len(items))
		x.send(ctx, A{Track: s.adapter.Features().Tracking}, items, replies)
		for j, r := range replies {
			if r.Err != nil {
				partitions{s}.moved()
			}
			q, result := in[at[j]], &out[at[j]]
			if q.Lease > 0 {
				s.seen.Forget(q.Name) // the session's own write: the server sends no invalidation for it
			}
			if r.Err == nil && q.Lease > 0 && !q.Exact && r.Value > q.Lease.Milliseconds() && r.Value > 1 {
				result.Remaining = time.Duration(min(r.Value, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
				r.Value = 1
			}
			result.Held, result.Err = s.yes(x.script, r.Value, r.Err)
		}
	}
}

// batch returns how many of the leases in are renewed together: at least one.
func (x renewal[I, A]) batch(in []backend.RenewRequest) int {
	if x.size == nil {
		return min(len(in), renewBatch)
	}
	sum := 0
	for i, r := range in {
		if sum += x.size(r.Owner); i > 0 && sum > renewBatch {
			return i
		}
	}
	return len(in)
}

// Inspect implements [backend.Store]. It reads the hash as Redisson does: a field is an owner, its value the hold
// count. Other fields, and values that are no counts, are ignored: the lock is held as long as the key exists.
func (s *session) Inspect(ctx context.Context, name string) (backend.Record, error) {
	if err := s.ready(ctx); err != nil {
		return backend.Record{}, err
	}
	return s.inspect(ctx, name)
}

// inspect sends the script of Inspect over the tracking connection, and decodes its reply.
func (s *core) inspect(ctx context.Context, name string) (backend.Record, error) {
	reply, err := s.adapter.Inspect(ctx, InspectKeys{Lock: name})
	if err != nil {
		return backend.Record{}, s.fault(err)
	}
	if len(reply)%2 != 1 {
		return backend.Record{}, strange("inspect", reply)
	}
	left, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil || left < -2 {
		return backend.Record{}, strange("inspect", reply)
	}
	fields := reply[1:]
	if len(fields) == 0 {
		return backend.Record{}, nil
	}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "mode" {
			return backend.Record{}, &backend.Fault{
				Err:    fmt.Errorf("the key holds a read-write lock: %w", backend.ErrWrongKind),
				Remedy: remedyReadWrite,
			}
		}
	}
	return ofLock(left, fields), nil
}

// Subscribe implements [backend.Store]. It watches the channel of a topic, and the additional channels of its queue.
func (s *session) Subscribe(t backend.Topic) {
	var all []pubsub.Watch
	for _, x := range (queue{s.core}).besides(t) {
		all = append(all, pubsub.Watch{Channel: topicChannel(x), Topic: x})
	}
	s.subs.WatchTogether(append(all, pubsub.Watch{Channel: topicChannel(t), Topic: t}))
}

// Unsubscribe implements [backend.Store].
func (s *session) Unsubscribe(t backend.Topic) {
	s.subs.Unwatch(topicChannel(t), t)
	if t.Kind == backend.KindLock {
		s.pairs.forget(t)
	}
	for _, x := range (queue{s.core}).besides(t) {
		s.subs.Unwatch(topicChannel(x), x)
	}
}

// loadingPatience bounds how long a Ping waits for the scripts to be loaded.
const loadingPatience = 500 * time.Millisecond

// Ping implements [backend.Store]. It sends PING, and until that succeeded once, a pipeline of SCRIPT LOAD to each
// master. Loading only saves commands later: a master that hangs, or is down, does not fail Ping, and the next Ping
// tries again.
func (s *session) Ping(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := s.adapter.Ping(ctx); err != nil {
		return s.fault(err)
	}
	ctx, cancel := context.WithTimeout(ctx, loadingPatience)
	defer cancel()
	_, err := s.loading.Get(ctx)
	if err = s.fault(err); err == nil || backend.FaultOf(err).Temporary {
		return nil
	}
	return err
}

func (s *session) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.cancel()
	s.joint.Close()
	s.subs.Close()
	s.greeting.Close()
	s.loading.Close()
	s.reads.close()
	err := s.adapter.Close()
	s.reads.wg.Wait()
	return err
}

// publish returns the command that announces a release.
func (s *core) publish() string {
	if s.sharded.Load() {
		return commandSPublish
	}
	return commandPublish
}

// ready returns an error if a command must not be sent: after Close, if ctx has ended and callers cannot leave
// commands, or if the server is too old or unfit for the client. Before the first command it asks for the server's
// version and mode, and on a cluster whether pub/sub is sharded.
func (s *core) ready(ctx context.Context) error {
	if s.closed.Load() {
		return &backend.Fault{Err: backend.ErrSessionClosed}
	}
	if err := ctx.Err(); err != nil && !s.adapter.Features().Leaves {
		return &backend.Fault{Err: err, Temporary: true}
	}
	if err := s.greet(ctx); err != nil {
		return err
	}
	if s.sharding != nil && !s.sharded.Load() {
		sharded, err := s.sharding.Get(ctx)
		if err != nil {
			return s.fault(err)
		}
		if sharded {
			s.sharded.Store(true)
		}
	}
	return nil
}

// invalidated is called by the client library with the keys that have changed; nil for all keys.
func (s *core) invalidated(keys []string) {
	if keys == nil {
		s.seen.ForgetAll()
		if !s.closed.Load() {
			s.handler.ChangedAll()
		}
		return
	}
	for _, key := range keys {
		s.seen.Forget(key)
		if !s.closed.Load() {
			// An invalidation does not say which kind of lock the key holds.
			s.handler.Changed(backend.Topic{Kind: backend.KindLock, Name: key})
			if s.sides.Load() {
				s.handler.Changed(backend.Topic{Kind: backend.KindWrite, Name: key})
			}
		}
	}
}

// maxMillis is the longest time in a reply. A longer one counts as no end: it is no lease, and would overflow a
// Duration when it is added to another time.
const maxMillis = int64(wire.LongestTime / time.Millisecond)

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// remaining decodes the remaining time in a script's reply; the result is negative if there is no end.
func remaining(ms int64) time.Duration {
	if ms < 0 || ms > maxMillis {
		return -1
	}
	return millis(max(ms, 1))
}
