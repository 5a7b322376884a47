package redisproto

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/heldcache"
	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
	"github.com/mortise-go/mortise/scripts"
)

// renewBatch bounds how long one renewal occupies the server: some 0.3 ms.
const renewBatch = 256

// core is one client's way into Redis, and what its kinds of locks share.
type core struct {
	adapter Adapter
	handler backend.Handler
	subs    pubsub.Watcher
	seen    *heldcache.Cache
	second  *heldcache.Second[Commands]
	joint   *joint
	nodes   nodes
	closed  atomic.Bool
	sides   atomic.Bool // a read-write lock was asked for
	tag     string      // what the session is called in queues

	greeting *Lazy[struct{}] // nil if the server is not asked
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	sharded  atomic.Bool
	// sharding decides at the first command whether sharded is true; nil if it never is.
	sharding *Lazy[bool]
}

// The kinds of locks, and what locks can do beyond being taken. Each is the core with methods of its own.
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
)

// session is the session of one client, and its plain locks. Each operation is one command; the
// exceptions are Renew and ReleaseAll (one per renewBatch, on a cluster one per slot), Ping, and a
// cached refusal, which sends none. A script that the server does not know yet
// costs one more, and so does the first operation of a session: HELLO.
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
		Age: agedLock{c}, Partitions: partitions{c}, Leaver: leaver{c}, Replicas: replicates && r.Replicates(),
	}
}

// Acquire implements [backend.Store]. Acquisitions without a token that need not be tracked go together, a lone one by
// itself.
func (s *session) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.AcquireReply{}, err
	}
	if r.Replicas > 0 {
		return s.acquireReplicated(ctx, r)
	}
	if left, held := s.known(r); held {
		return backend.AcquireReply{Remaining: left}, nil
	}
	f := s.adapter.Features()
	if !r.Fenced && f.Leaves && (s.second.Apart() || !f.Tracking) {
		var left int64
		var err error
		if c, beside, leaves := s.alone(); s.joint.Lead(ctx, leaves) {
			defer s.joint.Led() // also where the client library panics
			k, a := AcquireKeys{Lock: r.Name}, AcquireArgs{Owner: r.Owner, Lease: r.Lease}
			if left, err = c.Acquire(ctx, k, a); beside && s.failed(err) {
				left, err = s.adapter.Acquire(ctx, k, a)
			}
		} else {
			left, err = s.joint.do(ctx, JointItem{Lock: r.Name, Channel: r.Name, Owner: r.Owner, Lease: r.Lease})
		}
		reply, err := s.acquiredPlain(left, err)
		if err != nil || reply.Granted || !f.Tracking || !r.Unasked {
			return s.verified(reply), err
		}
		// Once more, over the connection that is told when it is free.
	}
	reply, err := learning(s.core, r.Name, func(r backend.AcquireReply) backend.AcquireReply { return r },
		func() (backend.AcquireReply, error) { return s.acquire(ctx, s.adapter, r) })
	return s.verified(reply), err
}

// alone are the commands of a caller that sends by itself; beside tells that they go over another connection than the
// adapter's, and leaves that the caller may leave them.
func (s *core) alone() (c LoneCommands, beside, leaves bool) {
	c, beside = s.second.Commands()
	if s.joint.loner == nil || !beside && s.second.Apart() { // the other connection has failed
		return c, beside, false
	}
	if lone := s.joint.loner.Lone(); lone != nil {
		return lone, true, true
	}
	return c, beside, false
}

// failed notes what a command over another connection came to, and reports whether the adapter is to send it.
func (s *core) failed(err error) (again bool) {
	return leftIn[int64](err) == nil && s.second.Failed(err)
}

// known returns what is left of the lease of a lock that is known to be held, where r may be refused without asking.
func (s *core) known(r backend.AcquireRequest) (left time.Duration, held bool) {
	if !r.Unasked || !s.adapter.Features().Tracking {
		return 0, false
	}
	return s.seen.Held(r.Name, time.Now())
}

// verifyAfter is when a lock that is still held is to be asked after, over a connection that tracks: most
// are released by then, and need no server to remember which client is told of the end of their record.
const verifyAfter = 250 * time.Millisecond

// verified is the reply to a request that does not have the server remember its client.
func (s *core) verified(reply backend.AcquireReply) backend.AcquireReply {
	if reply.Granted && s.adapter.Features().Tracking {
		reply.VerifyAfter = verifyAfter
	}
	return reply
}

// learning sends an acquisition from whose reply the held cache learns, where the connection tracks.
func learning[R any](s *core, name string, plain func(R) backend.AcquireReply, send func() (R, error)) (R, error) {
	if !s.adapter.Features().Tracking {
		return send()
	}
	query, sent := s.seen.Begin(name), time.Now()
	reply, err := send()
	if left := leftIn[R](err); left != nil {
		return reply, behind(left, func(reply R, err error) (R, error) {
			s.learn(query, sent, plain(reply), err)
			return reply, err
		})
	}
	s.learn(query, sent, plain(reply), err)
	return reply, err
}

// learn keeps in the held cache what an acquisition showed.
func (s *core) learn(query heldcache.Query, sent time.Time, reply backend.AcquireReply, err error) {
	switch {
	case err != nil:
		s.seen.End(query)
	case reply.Granted:
		s.seen.Free(query)
	case reply.Remaining == 0: // a fair lock that is free
		s.seen.End(query)
	case !s.adapter.Features().Tracking: // the connection turned out to have none
		s.seen.End(query)
	default:
		s.seen.Refused(query, sent, reply.Remaining)
	}
}

// leftIn is the call that err says was left; nil if it is another error, or none.
func leftIn[R any](err error) *backend.Left[R] {
	if err == nil {
		return nil
	}
	left, _ := errors.AsType[*backend.Left[R]](err)
	return left
}

// behind goes on with what a call that was left comes to. It is for those only: the function that it
// needs costs memory.
func behind[R, S any](left *backend.Left[R], then func(R, error) (S, error)) error {
	return &backend.Left[S]{Wait: func() (S, error) { return then(left.Wait()) }}
}

// Leaves is so for the plain lock, and for locks that are delegated.
func (s leaver) Leaves(k backend.Kind) bool {
	return (k == backend.KindLock || k == backend.KindDelegated) && s.adapter.Features().Leaves
}

// acquire sends an acquisition by c.
func (s *session) acquire(ctx context.Context, c Commands, r backend.AcquireRequest) (backend.AcquireReply, error) {
	args := AcquireArgs{Owner: r.Owner, Lease: r.Lease}
	if r.Fenced {
		reply, err := c.AcquireFenced(ctx, AcquireFencedKeys{Lock: r.Name, Token: tokenKey(r.Name)},
			AcquireFencedArgs(args))
		if left := leftIn[[]int64](err); left != nil {
			return backend.AcquireReply{}, behind(left, s.acquiredFenced)
		}
		return s.acquiredFenced(reply, err)
	}
	reply, err := c.Acquire(ctx, AcquireKeys{Lock: r.Name}, args)
	return s.acquiredPlain(reply, err)
}

// acquireReplicated does not learn from a refusal: it comes over a connection that others do not use.
func (s *session) acquireReplicated(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	if left, held := s.known(r); held {
		return backend.AcquireReply{Remaining: left}, nil
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

// setHolds sets the count in a field of the record.
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
	var reply int64
	var err error
	k, a := ReleaseKeys{Lock: r.Name, Channel: channelOf(r.Name)}, ReleaseArgs{Owner: r.Owner, Keep: int64(r.Keep)}
	if together := r.Keep == 0 && !r.Undo && s.adapter.Features().Leaves; !together {
		a.Publish = s.publish()
		reply, err = s.adapter.Release(ctx, k, a)
	} else if c, beside, leaves := s.alone(); s.joint.Lead(ctx, leaves) {
		defer s.joint.Led()
		a.Publish = commandPublish
		if reply, err = c.Release(ctx, k, a); beside && s.failed(err) {
			reply, err = s.adapter.Release(ctx, k, a)
		}
	} else {
		reply, err = s.joint.do(ctx, JointItem{Lock: k.Lock, Channel: k.Channel, Owner: r.Owner})
	}
	return s.releaseReply(r.Name, "release", reply, err)
}

// releaseReply is what a release came to that can be left.
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
func (s *session) ForceRelease(ctx context.Context, name string) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	reply, err := s.adapter.ForceRelease(ctx,
		ForceReleaseKeys{Lock: name, Channel: channelOf(name), Fair: queueKey(name)},
		ForceReleaseArgs{Publish: s.publish()})
	return s.wrote(name, "force_release", reply, err)
}

// mayFree has the held cache forget a lock after a script that may have freed it and came to err, which it returns.
func mayFree(seen *heldcache.Cache, name string, err error) error {
	switch {
	case err == nil:
		seen.Forget(name)
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
		return RenewItem{Lock: r.Name, Owner: r.Owner, Lease: r.Lease}, nil
	}}.of(ctx, s.core, in, out)
}

// renewal is how leases of a kind are renewed: by the script that send sends for items, each made of a request.
type renewal[I any, A ~struct{ Track bool }] struct {
	script string
	send   func(context.Context, A, []I, []BatchReply)
	item   func(backend.RenewRequest) (I, error)
}

// of sends batches one after the other, so that ctx bounds them all.
func (x renewal[I, A]) of(ctx context.Context, s *core, in []backend.RenewRequest, out []backend.RenewResult) {
	for n := 0; len(in) > 0; in, out = in[n:], out[n:] {
		n = min(len(in), renewBatch)
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
			held, err := s.yes(x.script, r.Value, r.Err)
			out[at[j]] = backend.RenewResult{Held: held, Err: err}
			if in[at[j]].Lease > 0 {
				s.seen.Forget(in[at[j]].Name) // our own write, which no invalidation follows
			}
		}
	}
}

// Inspect reads the hash as Redisson does: a field is an owner, its value the hold
// count. Other fields, or counts that are none, do not make it fail: the record is
// held as long as the key is there.
func (s *session) Inspect(ctx context.Context, name string) (backend.Record, error) {
	if err := s.ready(ctx); err != nil {
		return backend.Record{}, err
	}
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
	rec := backend.Record{Held: true, Remaining: remaining(left)}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "mode" {
			return backend.Record{}, &backend.Fault{
				Err:    fmt.Errorf("the key holds a read-write lock: %w", backend.ErrWrongKind),
				Remedy: remedyReadWrite,
			}
		}
		rec.Reserved = rec.Reserved || strings.HasPrefix(fields[i], "mortise:reserved:")
		holds, err := strconv.Atoi(fields[i+1])
		if err == nil && holds > 0 && rec.Holds == 0 {
			rec.Owner, rec.Holds = fields[i], holds
		}
	}
	if rec.Reserved = rec.Reserved && rec.Holds == 0; rec.Reserved {
		return backend.Record{Reserved: true}, nil
	}
	return rec, nil
}

// Subscribe watches the channel of a topic, and those beside it.
func (s *session) Subscribe(t backend.Topic) {
	var all []pubsub.Watch
	for _, x := range (queue{s.core}).besides(t) {
		all = append(all, pubsub.Watch{Channel: topicChannel(x), Topic: x})
	}
	s.subs.WatchTogether(append(all, pubsub.Watch{Channel: topicChannel(t), Topic: t}))
}

// Unsubscribe takes Subscribe back.
func (s *session) Unsubscribe(t backend.Topic) {
	s.subs.Unwatch(topicChannel(t), t)
	for _, x := range (queue{s.core}).besides(t) {
		s.subs.Unwatch(topicChannel(x), x)
	}
}

// Ping costs two commands: PING, and a pipeline of SCRIPT LOAD per master.
func (s *session) Ping(ctx context.Context) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	if err := s.adapter.Ping(ctx); err != nil {
		return s.fault(err)
	}
	return s.fault(s.adapter.LoadScripts(ctx, scripts.Sources()))
}

func (s *session) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.cancel()
	s.joint.Close()
	s.subs.Close()
	if s.greeting != nil {
		s.greeting.Close()
	}
	return s.adapter.Close()
}

// publish is the command that announces a release.
func (s *core) publish() string {
	if s.sharded.Load() {
		return commandSPublish
	}
	return commandPublish
}

// ready refuses what need not be sent: after Close, and with a context that ended. The
// first command of a client of a cluster is preceded by one more, which tells how to publish.
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

// invalidated hears from the client library of keys that changed; nil for all.
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
			// What the key holds is not told.
			s.handler.Changed(backend.Topic{Kind: backend.KindLock, Name: key})
			if s.sides.Load() {
				s.handler.Changed(backend.Topic{Kind: backend.KindWrite, Name: key})
			}
		}
	}
}

// maxMillis is a hundred years. What is said to last longer has no end: it is no lease, and
// a time so far away, added to another, would not fit a Duration and be over.
const maxMillis = int64(100 * 365 * 24 * time.Hour / time.Millisecond)

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// remaining is the time that a script says is left; negative where there is no end.
func remaining(ms int64) time.Duration {
	if ms < 0 || ms > maxMillis {
		return -1
	}
	return millis(max(ms, 1))
}
