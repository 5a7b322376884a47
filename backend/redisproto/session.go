package redisproto

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	tag     string      // what the client is called in nextKey: seven digits

	greeting *Lazy[struct{}] // nil if the server is not asked
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	sharded  atomic.Bool
	// sharding decides at the first command whether sharded is true; nil if it never is.
	sharding *Lazy[bool]
}

// The kinds of locks, and what locks can do beyond being taken. Each is the core with methods of its own.
type (
	readWrite struct{ *core }
	fairLock  struct{ *core }
	counters  struct{ *core }
	permits   struct{ *core }
	nested    struct{ *core }
	agedLock  struct{ *core }
	multiLock struct{ *core }
	relay     struct{ *core }
)

// session is the session of one client. Each operation is one command; the
// exceptions are Renew and ReleaseAll (one per renewBatch, on a cluster one per slot), Ping, and a
// cached refusal, which sends none. A script that the server does not know yet
// costs one more, and so does the first operation of a session: HELLO.
type session struct {
	*core
	readWrite
	fairLock
	counters
	permits
	nested
	agedLock
	multiLock
	relay
}

func newSession(s *core) *session {
	return &session{
		core: s, readWrite: readWrite{s}, fairLock: fairLock{s}, counters: counters{s}, permits: permits{s},
		nested: nested{s}, agedLock: agedLock{s}, multiLock: multiLock{s}, relay: relay{s},
	}
}

// Capabilities implements [backend.Store].
func (s *session) Capabilities() backend.Capabilities {
	r, replicates := s.adapter.(Replicator)
	return backend.Capabilities{
		ReadWrite: s, Fair: s, Batch: s, Semaphores: s, Latches: s, Permits: s, Delegation: s, Queue: s, Age: s, Nodes: s,
		Leaver: s, Replicas: replicates && r.Replicates(),
	}
}

func (s *session) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.AcquireReply{}, err
	}
	if r.Replicas > 0 {
		return s.acquireReplicated(ctx, r)
	}
	switch r.Kind {
	case backend.KindPermits:
		return s.acquirePermit(ctx, r)
	case backend.KindRead, backend.KindWrite:
		return s.acquireSide(ctx, s.adapter, r)
	case backend.KindLock:
		if r.Age != nil {
			aged, err := s.aged(ctx)
			if err != nil {
				return backend.AcquireReply{}, err
			}
			if aged {
				return s.acquireAged(ctx, r)
			}
		}
	}
	track := s.adapter.Features().Tracking
	if track && r.Cached {
		if left, held := s.seen.Held(r.Name, time.Now()); held {
			return backend.AcquireReply{Remaining: left}, nil
		}
	}
	switch joint := r.Kind == backend.KindLock && !r.Waits && !r.Fenced && s.adapter.Features().Leaves; {
	case joint && (s.second.Apart() || !track):
		item := JointItem{Lock: r.Name, Channel: r.Name, Owner: r.Owner, Lease: r.Lease}
		var left int64
		var err error
		if s.joint.Lead(ctx) {
			left, err = s.one(item)
			s.joint.Led()
		} else {
			left, err = s.joint.do(ctx, item)
		}
		reply, err := s.acquiredPlain(left, err)
		if err != nil || reply.Granted || !track || !r.Cached {
			return s.confirmed(reply), err
		}
		// Once more, over the connection that is told when it is free.
	case !track:
		return s.acquire(ctx, s.adapter, r, false)
	}
	query, sent := s.seen.Begin(r.Name), time.Now()
	reply, err := s.acquire(ctx, s.adapter, r, true)
	if left := leftIn[backend.AcquireReply](err); left != nil {
		return backend.AcquireReply{}, behind(left,
			func(reply backend.AcquireReply, err error) (backend.AcquireReply, error) {
				s.learn(query, sent, reply, err)
				return reply, err
			})
	}
	s.learn(query, sent, reply, err)
	if r.Kind == backend.KindLock && !r.Waits {
		reply = s.confirmed(reply)
	}
	return reply, err
}

// confirmWithin is when a lock that is still held is to be asked after, over a connection that tracks: most
// are released by then, and need no server to remember which client is told of the end of their record.
const confirmWithin = 250 * time.Millisecond

// confirmed is the reply to a request that does not have the server remember its client.
func (s *core) confirmed(reply backend.AcquireReply) backend.AcquireReply {
	if reply.Granted && s.adapter.Features().Tracking {
		reply.Confirm = confirmWithin
	}
	return reply
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

// Leaves is so for the plain lock, and those that are nested.
func (s *session) Leaves(k backend.Kind) bool {
	return (k == backend.KindLock || k == backend.KindDelegated) && s.adapter.Features().Leaves
}

// acquire sends an acquisition by c.
func (s *session) acquire(ctx context.Context, c Commands, r backend.AcquireRequest,
	track bool) (backend.AcquireReply, error) {
	if r.Kind == backend.KindFair {
		return s.acquireFair(ctx, c, r, track)
	}
	if r.Waits && r.Kind == backend.KindLock {
		return s.acquireWaiting(ctx, c, r, track)
	}
	args := AcquireArgs{Owner: r.Owner, Lease: r.Lease}
	if r.Fenced {
		reply, err := c.AcquireFenced(ctx, AcquireFencedKeys{Lock: r.Name, Token: tokenKey(r.Name)}, args)
		if left := leftIn[[]int64](err); left != nil {
			return backend.AcquireReply{}, behind(left, s.acquiredFenced)
		}
		return s.acquiredFenced(reply, err)
	}
	reply, err := c.Acquire(ctx, AcquireKeys{Lock: r.Name}, args)
	return s.acquiredPlain(reply, err)
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

func (s *session) SetHolds(ctx context.Context, r backend.HoldsRequest) (backend.HoldsReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.HoldsReply{}, err
	}
	owner := r.Owner
	switch r.Kind {
	case backend.KindRead:
		return backend.HoldsReply{}, errNoReentry
	case backend.KindWrite:
		owner = writerField(r.Owner)
	}
	c, w := s.by(r.Replicas, r.ReplicaWait)
	reply, err := c.Reenter(ctx, ReenterKeys{Lock: r.Name, Token: tokenKey(r.Name)}, ReenterArgs{
		Owner:  owner,
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

func (s *session) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.ReleaseReply{}, err
	}
	switch r.Kind {
	case backend.KindPermits:
		return s.releasePermit(ctx, r)
	case backend.KindRead:
		return s.releaseRead(ctx, r)
	case backend.KindWrite:
		return s.releaseWrite(ctx, r)
	case backend.KindFair:
		return s.releaseFair(ctx, r)
	case backend.KindDelegated:
		return s.releaseNested(ctx, r)
	}
	name := r.Name
	if r.Keep == 0 && !r.Undo && s.adapter.Features().Leaves {
		item := JointItem{Lock: name, Channel: channelOf(name), Owner: r.Owner}
		var reply int64
		var err error
		if s.joint.Lead(ctx) {
			defer s.joint.Led()
			reply, err = s.one(item)
		} else {
			reply, err = s.joint.do(ctx, item)
		}
		return s.releaseReply(name, "release", reply, err)
	}
	args := ReleaseArgs{Owner: r.Owner, Keep: int64(r.Keep)}
	if s.counts() {
		args.Publish = s.publish()
	}
	reply, err := s.adapter.Release(ctx, ReleaseKeys{Lock: name, Channel: channelOf(name)}, args)
	return s.releaseReply(name, "release", reply, err)
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

func (s *session) ForceRelease(ctx context.Context, t backend.Topic) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	if sided(t.Kind) {
		return s.forceRelease(ctx, t.Name)
	}
	reply, err := s.adapter.ForceRelease(ctx,
		ForceReleaseKeys{Lock: t.Name, Channel: channelOf(t.Name), Queue: queueKey(t.Name)},
		ForceReleaseArgs{Publish: s.publish()})
	return s.wrote(t.Name, "force_release", reply, err)
}

// wrote decodes the reply of a script that may have freed a lock: 0 or 1.
func (s *core) wrote(name, script string, reply int64, err error) (bool, error) {
	if err != nil {
		err = s.fault(err)
		if backend.FaultOf(err).MayHaveRun {
			s.seen.Exclude(name, time.Now())
		}
		return false, err
	}
	s.seen.Forget(name)
	if reply != 0 && reply != 1 {
		return false, strange(script, reply)
	}
	return reply == 1, nil
}

// Renew sends the batches one after the other, so that ctx bounds them all. A batch
// is of one kind: it pays to put requests of one kind together.
func (s *session) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	for len(in) > 0 {
		n := 1
		for n < min(len(in), renewBatch) && in[n].Kind == in[0].Kind {
			n++
		}
		if err := s.ready(ctx); err != nil {
			for i := range out[:n] {
				out[i] = backend.RenewResult{Err: err}
			}
		} else if in[0].Kind == backend.KindPermits {
			s.renewPermits(ctx, in[:n], out[:n])
		} else if in[0].Kind == backend.KindRead {
			s.renewReads(ctx, in[:n], out[:n])
		} else if in[0].Kind == backend.KindDelegated {
			s.renewNested(ctx, in[:n], out[:n])
		} else {
			s.renewLocks(ctx, in[:n], out[:n])
		}
		in, out = in[n:], out[n:]
	}
}

func (s *session) renewLocks(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	items, replies := make([]RenewItem, len(in)), make([]BatchReply, len(in))
	for i, r := range in {
		items[i] = RenewItem{Lock: r.Name, Owner: r.Owner, Lease: r.Lease}
		if r.Kind == backend.KindWrite {
			items[i].Owner = writerField(r.Owner)
		}
	}
	s.adapter.Renew(ctx, RenewArgs{Track: s.adapter.Features().Tracking}, items, replies)
	s.renewed("renew", in, replies, out)
}

func (s *core) renewed(script string, in []backend.RenewRequest, replies []BatchReply, out []backend.RenewResult) {
	for i, r := range replies {
		if r.Err != nil {
			s.movedNodes()
		}
		held, err := s.yes(script, r.Value, r.Err)
		out[i] = backend.RenewResult{Held: held, Err: err}
		if in[i].Lease > 0 {
			s.seen.Forget(in[i].Name) // our own write, which no invalidation follows
		}
	}
}

// Inspect reads the hash as Redisson does: a field is an owner, its value the hold
// count. Other fields, or counts that are none, do not make it fail: the record is
// held as long as the key is there.
func (s *session) Inspect(ctx context.Context, t backend.Topic) (backend.Record, error) {
	if err := s.ready(ctx); err != nil {
		return backend.Record{}, err
	}
	if sided(t.Kind) {
		return s.inspectRW(ctx, t.Name)
	}
	reply, err := s.adapter.Inspect(ctx, InspectKeys{Lock: t.Name})
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
		holds, err := strconv.Atoi(fields[i+1])
		if err == nil && holds > 0 && rec.Holds == 0 {
			rec.Owner, rec.Holds = fields[i], holds
		}
	}
	return rec, nil
}

func (s *session) Subscribe(t backend.Topic)   { s.subs.Watch(topicChannel(t), t) }
func (s *session) Unsubscribe(t backend.Topic) { s.subs.Unwatch(topicChannel(t), t) }

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
