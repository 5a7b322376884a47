package redisproto

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/mortise-go/mortise/backend"
)

// semaphoreChannel is the channel for releases of a semaphore of either kind.
func semaphoreChannel(name string) string { return tagged("redisson_sc:", name) }

// latchChannel is the channel of a latch. Redisson puts braces around the name even if the name has braces.
func latchChannel(name string) string { return "redisson_countdownlatch__channel__{" + name + "}" }

// latchShardChannel is the channel of a latch for sharded pub/sub. It differs from latchChannel for a name with
// braces: that channel is in another slot than the latch, and a script can publish in its own slot only. Redisson's
// scripts name both as keys, so in Redisson such latches do not work on a cluster.
func latchShardChannel(name string) string {
	return tagged("redisson_countdownlatch__channel__", name)
}

// timeoutsKey is the zset of a semaphore's permits in use.
func timeoutsKey(name string) string { return tagged("", name) + ":timeout" }

// onceKey is the key that remembers a request that was carried out. Redisson does not use it. The key always has a
// time to live.
func onceKey(r backend.CountRequest) string {
	return companion("once", r.Topic.Name) + ":" + r.ID
}

// heeds reports whether a message on the channel of a topic of this kind may announce a release. The message of a
// semaphore is the number of free permits. A number that is not positive is for no waiter. A number that begins with 0
// is for Redisson's waiters only: mortise's waiting clients, if any, were notified by their entries.
func heeds(k backend.Kind, payload string) bool {
	switch k {
	case backend.KindCountDownLatch:
		return true
	case backend.KindCountingSemaphore, backend.KindSemaphore:
		n, err := strconv.ParseInt(payload, 10, 64)
		return n > 0 && payload[0] != '0' || err != nil
	}
	return !strings.HasPrefix(payload, ignoredPayload)
}

// The kinds of counts. Each type is the core with the methods of a kind.
type (
	counters           struct{ *core }
	latches            struct{ counters }
	countingSemaphores struct{ counters }
	permits            struct{ countingSemaphores }
)

// number sends a script whose reply is a number.
func (s *core) number(ctx context.Context, send func() (int64, error)) (int64, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	n, err := send()
	return n, s.fault(err)
}

// affirmed sends a script whose reply is 1 or 0.
func (s *core) affirmed(ctx context.Context, script string, send func() (int64, error)) (bool, error) {
	n, err := s.number(ctx, send)
	return s.yes(script, n, err)
}

// Count reads a count.
func (s counters) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return s.number(ctx, func() (int64, error) { return s.adapter.Count(ctx, CountKeys{Count: t.Name}) })
}

// SetCount implements [backend.CountDownLatchStore].
func (s latches) SetCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return s.affirmed(ctx, "latch_set", func() (int64, error) {
		a := s.args()
		return s.adapter.LatchSet(ctx, LatchSetKeys(latchKeys(r)), LatchSetArgs{Count: r.N, Keep: a.Keep, Publish: a.Publish})
	})
}

// CountDown implements [backend.CountDownLatchStore].
func (s latches) CountDown(ctx context.Context, r backend.CountRequest) (int64, error) {
	return s.number(ctx, func() (int64, error) {
		return s.adapter.LatchCountDown(ctx, LatchCountDownKeys(latchKeys(r)), LatchCountDownArgs(s.args()))
	})
}

// DeleteCount implements [backend.CountDownLatchStore].
func (s latches) DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return s.affirmed(ctx, "latch_delete", func() (int64, error) {
		return s.adapter.LatchDelete(ctx, latchKeys(r), s.args())
	})
}

func (s latches) args() LatchDeleteArgs {
	return LatchDeleteArgs{Keep: backend.Remembered, Publish: s.publish()}
}

// SetCount implements [backend.CountingSemaphoreStore].
func (s countingSemaphores) SetCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return s.affirmed(ctx, "semaphore_set", func() (int64, error) {
		return s.adapter.SemaphoreSet(ctx, semaphoreKeys(r), s.args(r))
	})
}

// AddCount implements [backend.CountingSemaphoreStore].
func (s countingSemaphores) AddCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return s.number(ctx, func() (int64, error) {
		return s.adapter.SemaphoreAdd(ctx, SemaphoreAddKeys(semaphoreKeys(r)), SemaphoreAddArgs(s.args(r)))
	})
}

// TakeCount implements [backend.CountingSemaphoreStore].
func (s countingSemaphores) TakeCount(ctx context.Context, r backend.CountRequest) (backend.TakeReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.TakeReply{}, err
	}
	reply, err := s.adapter.SemaphoreTake(ctx, SemaphoreTakeKeys{Semaphore: r.Topic.Name, Once: onceKey(r)},
		SemaphoreTakeArgs{Permits: r.N, Keep: backend.Remembered, Again: r.Again,
			Entry: entryOf(s.core, r.Topic.Kind, r.Enrolment), Stays: r.Stays, Least: max(r.Least, 1), Heard: r.Heard})
	if err != nil {
		return backend.TakeReply{}, s.fault(err)
	}
	if len(reply) != 4 || reply[0] != 0 && reply[0] != 1 || reply[3] < 0 {
		return backend.TakeReply{}, strange("semaphore_take", reply)
	}
	return backend.TakeReply{
		Granted: reply[0] == 1, Available: reply[1], Remaining: millis(reply[3]), QueueReply: queued(reply[2]),
	}, nil
}

// CancelTake implements [backend.CountingSemaphoreStore].
func (s countingSemaphores) CancelTake(ctx context.Context, r backend.CountRequest) error {
	_, err := s.affirmed(ctx, "semaphore_cancel", func() (int64, error) {
		return s.adapter.SemaphoreCancel(ctx, SemaphoreCancelKeys(semaphoreKeys(r)), SemaphoreCancelArgs(s.args(r)))
	})
	return err
}

// DrainCount implements [backend.CountingSemaphoreStore].
func (s countingSemaphores) DrainCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return s.number(ctx, func() (int64, error) {
		return s.adapter.SemaphoreDrain(ctx, SemaphoreDrainKeys{Semaphore: r.Topic.Name, Once: onceKey(r)},
			SemaphoreDrainArgs{Keep: backend.Remembered})
	})
}

func (s countingSemaphores) args(r backend.CountRequest) SemaphoreSetArgs {
	return SemaphoreSetArgs{Permits: r.N, Keep: backend.Remembered, Publish: s.publish()}
}

// Count implements [backend.SemaphoreStore]: it first returns expired permits to the count.
func (s permits) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return s.number(ctx, func() (int64, error) {
		return s.adapter.PermitsCount(ctx, PermitsCountKeys(permitsKeys(t.Name)), PermitsCountArgs{Publish: s.publish()})
	})
}

// DeleteCount implements [backend.CountingSemaphoreStore].
func (s countingSemaphores) DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return s.affirmed(ctx, "semaphore_delete", func() (int64, error) {
		k := SemaphoreDeleteKeys{Semaphore: r.Topic.Name, Timeouts: timeoutsKey(r.Topic.Name), Once: onceKey(r)}
		return s.adapter.SemaphoreDelete(ctx, k, SemaphoreDeleteArgs{Keep: backend.Remembered})
	})
}

// SetLimit implements [backend.SemaphoreStore].
func (s permits) SetLimit(ctx context.Context, r backend.CountRequest) (int64, error) {
	return s.number(ctx, func() (int64, error) {
		k := permitsKeys(r.Topic.Name)
		return s.adapter.PermitsSet(ctx,
			PermitsSetKeys{Permits: k.Permits, Timeouts: k.Timeouts, Channel: k.Channel, Once: onceKey(r)},
			PermitsSetArgs{Limit: r.N, Keep: backend.Remembered, Publish: s.publish()})
	})
}

// InspectPermits implements [backend.SemaphoreStore].
func (s permits) InspectPermits(ctx context.Context, name string, most int) (out backend.PermitsRecord, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	reply, err := s.adapter.PermitsInspect(ctx, PermitsInspectKeys{Permits: name, Timeouts: timeoutsKey(name)},
		PermitsInspectArgs{Most: int64(most)})
	if err != nil {
		return out, s.fault(err)
	}
	if len(reply) < 2 || len(reply)%2 != 0 {
		return out, strange("permits_inspect", reply)
	}
	if out.Free, err = strconv.ParseInt(reply[0], 10, 64); err == nil {
		out.Out, err = strconv.ParseInt(reply[1], 10, 64)
	}
	for i := 2; i < len(reply) && err == nil; i += 2 {
		var left int64
		left, err = strconv.ParseInt(reply[i+1], 10, 64)
		id := hex.EncodeToString([]byte(reply[i]))
		out.List = append(out.List, backend.PermitRecord{ID: id, Remaining: remaining(left)})
	}
	if err != nil {
		return out, strange("permits_inspect", reply)
	}
	return out, nil
}

// Acquire implements [backend.SemaphoreStore].
func (s permits) Acquire(ctx context.Context, r backend.PermitRequest) (out backend.PermitReply, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	ids, n, err := rawIDs(r.Owner)
	if err != nil {
		return out, err
	}
	t := backend.Topic{Kind: backend.KindSemaphore, Name: r.Name}
	x := s.enrolling(t, r.Enrolment, r.Owner, strconv.FormatInt(n, 10))
	reply, err := s.adapter.PermitsAcquire(ctx, permitsKeys(r.Name),
		PermitsAcquireArgs{Ids: ids, Wants: n, Lease: r.Lease, Publish: s.publish(), Limit: r.Limit, Declare: r.Declare,
			Entry: x.entry(r.Lease), Stays: r.Stays && !x.Grants, Least: max(r.Least, 1), Heard: r.Heard,
			Instead: x.instead()})
	x.answered(last(reply), err)
	if err != nil {
		return out, s.fault(err)
	}
	if len(reply) != 4 || reply[0] < -1 {
		return out, strange("permits_acquire", reply)
	}
	out.Granted, out.Available, out.QueueReply = reply[0] == 0, reply[1], queued(reply[2])
	if !out.Granted {
		out.Remaining = remaining(reply[0])
	}
	return out, nil
}

// Release implements [backend.SemaphoreStore].
func (s permits) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	if r.Undo && s.grants {
		held, err := s.leaves(ctx, backend.Topic{Kind: backend.KindSemaphore, Name: r.Name}, 0, r.Owner)
		return backend.ReleaseReply{Held: held}, err
	}
	held, err := s.affirmed(ctx, "permits_release", func() (int64, error) {
		ids, n, err := rawIDs(r.Owner)
		if err != nil {
			return 0, err
		}
		return s.adapter.PermitsRelease(ctx, PermitsReleaseKeys(permitsKeys(r.Name)),
			PermitsReleaseArgs{Ids: ids, Count: n, Publish: s.publish()})
	})
	return backend.ReleaseReply{Held: held}, err
}

// Renew implements [backend.SemaphoreStore].
func (s permits) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	send := func(ctx context.Context, _ RenewArgs, items []PermitsRenewItem, replies []BatchReply) {
		s.adapter.PermitsRenew(ctx, items, replies)
	}
	item := func(r backend.RenewRequest) (PermitsRenewItem, error) {
		ids, n, err := rawIDs(r.Owner)
		return PermitsRenewItem{Timeouts: timeoutsKey(r.Name), Ids: ids, Count: n, Lease: r.Lease, Exact: r.Exact}, err
	}
	permits := func(owner string) int { return 1 + strings.Count(owner, ",") }
	renewal[PermitsRenewItem, RenewArgs]{"permits_renew", send, item, permits}.of(ctx, s.core, in, out)
}

// yes decodes a reply that is 1 or 0.
func (s *core) yes(script string, reply int64, err error) (bool, error) {
	if err != nil {
		return false, s.fault(err)
	}
	if reply != 0 && reply != 1 {
		return false, strange(script, reply)
	}
	return reply == 1, nil
}

func latchKeys(r backend.CountRequest) LatchDeleteKeys {
	return LatchDeleteKeys{Latch: r.Topic.Name, Once: onceKey(r)}
}

func semaphoreKeys(r backend.CountRequest) SemaphoreSetKeys {
	return SemaphoreSetKeys{Semaphore: r.Topic.Name, Once: onceKey(r), Channel: semaphoreChannel(r.Topic.Name)}
}

func permitsKeys(name string) PermitsAcquireKeys {
	return PermitsAcquireKeys{Permits: name, Timeouts: timeoutsKey(name), Channel: semaphoreChannel(name)}
}

var errNoIDs = errors.New("the ids of permits are not hexadecimal digits, 32 or more, of one length")

// rawIDs returns the ids of an owner's permits in the stored form, decoded from hexadecimal and concatenated, and their
// number.
func rawIDs(owner string) (raw string, n int64, err error) {
	first := strings.IndexByte(owner+",", ',')
	b := make([]byte, 0, len(owner)/2)
	for id := range backend.PermitIDs(owner) {
		n++
		b, err = hex.AppendDecode(b, []byte(id))
		if err != nil || len(id) < 32 || len(id) != first || n > backend.MaxPermits {
			return "", 0, &backend.Fault{Err: errNoIDs}
		}
	}
	return string(b), n, nil
}
