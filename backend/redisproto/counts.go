package redisproto

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/mortise-go/mortise/backend"
)

// semaphoreChannel is where releases of a semaphore are announced, of permits that
// expire too.
func semaphoreChannel(name string) string { return tagged("redisson_sc:", name) }

// latchChannel: Redisson puts braces around a name whether it has some or not.
func latchChannel(name string) string { return "redisson_countdownlatch__channel__{" + name + "}" }

// latchShardChannel differs for a name that has braces of its own: Redisson's channel is in
// another slot then, where the script that publishes may not reach. Redisson itself names
// both as keys of its scripts, so such latches do not work in it on any cluster.
func latchShardChannel(name string) string {
	return tagged("redisson_countdownlatch__channel__", name)
}

// timeoutsKey is the zset of permits that are out.
func timeoutsKey(name string) string { return tagged("", name) + ":timeout" }

// onceKey remembers that a request was carried out. Redisson does not know it, and
// it always expires.
func onceKey(r backend.CountRequest) string {
	return companion("once", r.Topic.Name) + ":" + r.ID
}

// heeds tells whether a message on the channel of a topic of this kind may mean that
// it was released. A semaphore's says how many permits there are; one that is not
// positive is for no waiter.
func heeds(k backend.Kind, payload string) bool {
	switch k {
	case backend.KindLatch:
		return true
	case backend.KindSemaphore, backend.KindPermits:
		n, err := strconv.ParseInt(payload, 10, 64)
		return n > 0 || err != nil
	}
	return payload != ignoredPayload
}

func (s counters) SetCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	if r.Topic.Kind == backend.KindLatch {
		reply, err := s.adapter.LatchSet(ctx, latchKeys(r),
			LatchSetArgs{Count: r.N, Keep: backend.Remembered, Publish: s.publish()})
		return s.yes("latch_set", reply, err)
	}
	reply, err := s.adapter.SemaphoreSet(ctx, semaphoreKeys(r), s.semaphoreArgs(r))
	return s.yes("semaphore_set", reply, err)
}

// Count of permits that expire puts those back that have ended; other counts are
// only read.
func (s counters) Count(ctx context.Context, t backend.Topic) (int64, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	var n int64
	var err error
	if t.Kind == backend.KindPermits {
		n, err = s.adapter.PermitsCount(ctx, permitsKeys(t.Name), PermitsCountArgs{Publish: s.publish()})
	} else {
		n, err = s.adapter.Count(ctx, CountKeys{Count: t.Name})
	}
	return n, s.fault(err)
}

func (s counters) CountDown(ctx context.Context, r backend.CountRequest) (int64, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	n, err := s.adapter.LatchCountDown(ctx, latchKeys(r), LatchArgs{Keep: backend.Remembered, Publish: s.publish()})
	return n, s.fault(err)
}

func (s counters) DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	if err := s.ready(ctx); err != nil {
		return false, err
	}
	reply, err := s.adapter.LatchDelete(ctx, latchKeys(r), LatchArgs{Keep: backend.Remembered, Publish: s.publish()})
	return s.yes("latch_delete", reply, err)
}

func (s counters) AddCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	n, err := s.adapter.SemaphoreAdd(ctx, semaphoreKeys(r), s.semaphoreArgs(r))
	return n, s.fault(err)
}

func (s counters) TakeCount(ctx context.Context, r backend.CountRequest) (backend.TakeReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.TakeReply{}, err
	}
	reply, err := s.adapter.SemaphoreTake(ctx, SemaphoreTakeKeys{Semaphore: r.Topic.Name, Once: onceKey(r)},
		SemaphoreTakeArgs{Permits: r.N, Keep: backend.Remembered, Again: r.Again})
	if err != nil {
		return backend.TakeReply{}, s.fault(err)
	}
	if len(reply) != 2 || reply[0] != 0 && reply[0] != 1 {
		return backend.TakeReply{}, strange("semaphore_take", reply)
	}
	return backend.TakeReply{Granted: reply[0] == 1, Available: reply[1]}, nil
}

func (s counters) CancelTake(ctx context.Context, r backend.CountRequest) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	reply, err := s.adapter.SemaphoreCancel(ctx, semaphoreKeys(r), s.semaphoreArgs(r))
	_, err = s.yes("semaphore_cancel", reply, err)
	return err
}

func (s counters) DrainCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	n, err := s.adapter.SemaphoreDrain(ctx, SemaphoreTakeKeys{Semaphore: r.Topic.Name, Once: onceKey(r)},
		SemaphoreDrainArgs{Keep: backend.Remembered})
	return n, s.fault(err)
}

func (s permits) acquirePermit(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	id, err := rawID(r.Owner)
	if err != nil {
		return backend.AcquireReply{}, err
	}
	reply, err := s.adapter.PermitsAcquire(ctx, permitsKeys(r.Name),
		PermitsAcquireArgs{ID: id, Lease: r.Lease, Publish: s.publish()})
	if err != nil {
		return backend.AcquireReply{}, s.fault(err)
	}
	if len(reply) != 2 || reply[0] < -1 {
		return backend.AcquireReply{}, strange("permits_acquire", reply)
	}
	out := backend.AcquireReply{Granted: reply[0] == 0, Available: reply[1]}
	if !out.Granted {
		out.Remaining = remaining(reply[0])
	}
	return out, nil
}

func (s permits) releasePermit(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	id, err := rawID(r.Owner)
	if err != nil {
		return backend.ReleaseReply{}, err
	}
	reply, err := s.adapter.PermitsRelease(ctx, permitsKeys(r.Name), PermitsReleaseArgs{ID: id, Publish: s.publish()})
	held, err := s.yes("permits_release", reply, err)
	return backend.ReleaseReply{Held: held}, err
}

func (s permits) renewPermits(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	items, at := make([]PermitsRenewItem, 0, len(in)), make([]int, 0, len(in))
	for i, r := range in {
		id, err := rawID(r.Owner)
		if err != nil {
			out[i] = backend.RenewResult{Err: err}
			continue
		}
		items, at = append(items, PermitsRenewItem{Timeouts: timeoutsKey(r.Name), ID: id, Lease: r.Lease}),
			append(at, i)
	}
	if len(items) == 0 {
		return
	}
	replies := make([]BatchReply, len(items))
	s.adapter.PermitsRenew(ctx, items, replies)
	for j, r := range replies {
		held, err := s.yes("permits_renew", r.Value, r.Err)
		out[at[j]] = backend.RenewResult{Held: held, Err: err}
	}
}

// yes decodes a reply of 1 or 0.
func (s *core) yes(script string, reply int64, err error) (bool, error) {
	if err != nil {
		return false, s.fault(err)
	}
	if reply != 0 && reply != 1 {
		return false, strange(script, reply)
	}
	return reply == 1, nil
}

func latchKeys(r backend.CountRequest) LatchKeys {
	return LatchKeys{Latch: r.Topic.Name, Once: onceKey(r)}
}

func semaphoreKeys(r backend.CountRequest) SemaphoreKeys {
	return SemaphoreKeys{Semaphore: r.Topic.Name, Once: onceKey(r), Channel: semaphoreChannel(r.Topic.Name)}
}

func (s counters) semaphoreArgs(r backend.CountRequest) SemaphoreArgs {
	return SemaphoreArgs{Permits: r.N, Keep: backend.Remembered, Publish: s.publish()}
}

func permitsKeys(name string) PermitsKeys {
	return PermitsKeys{Permits: name, Timeouts: timeoutsKey(name), Channel: semaphoreChannel(name)}
}

// rawID is a permit's id as it is stored.
func rawID(id string) (string, error) {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != 16 {
		return "", &backend.Fault{Err: errors.New("a permit's id is not 32 hexadecimal digits")}
	}
	return string(raw), nil
}
