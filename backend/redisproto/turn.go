package redisproto

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// A release tells one client, and not all that wait: the first of those that are in
// next. It does so on Redisson's channel, by a number that Redisson does not heed: seven digits for
// the client that is to ask, seven for the one that asks if that one stays silent, four for how many
// were told. See docs/decisions/0024.

// nextKey is the zset of the clients that wait for a lock, by when they came. release.lua and
// joint.lua build it, too.
func nextKey(name string) string { return companion("next", name) }

const (
	// nextKept is for how long nextKey is kept beyond the holder's lease: the waiters ask by then.
	nextKept = time.Minute
	tagLen   = 7
)

// newTag never begins with a zero: a payload is a number, and 0 and 1 say something else. Two clients
// that share one are told of a release both.
func newTag() string { return strconv.Itoa(1_000_000 + rand.IntN(9_000_000)) }

// counts reports whether PUBLISH counts all subscribers, and not only those of the node it ran on.
func (s *core) counts() bool {
	return !s.adapter.Features().Cluster || s.sharded.Load()
}

func (s relay) acquireWaiting(ctx context.Context, c Commands, r backend.AcquireRequest,
	track bool) (backend.AcquireReply, error) {
	reply, err := c.WaiterAcquire(ctx,
		WaiterAcquireKeys{Lock: r.Name, Next: nextKey(r.Name), Token: tokenKey(r.Name)},
		WaiterAcquireArgs{Owner: r.Owner, Lease: r.Lease, Fenced: r.Fenced, Track: track, Tag: s.tag, Keep: nextKept})
	if left := leftIn[[]int64](err); left != nil {
		return backend.AcquireReply{}, behind(left, s.acquiredWaiting)
	}
	return s.acquiredWaiting(reply, err)
}

func (s relay) acquiredWaiting(reply []int64, err error) (backend.AcquireReply, error) {
	switch {
	case err != nil:
		return backend.AcquireReply{}, s.faultOf(err, true)
	case len(reply) != 2 || reply[0] < 0 || reply[0] > 2 || reply[1] < -1:
		return backend.AcquireReply{}, strange("waiter_acquire", reply)
	case reply[0] == 1:
		return backend.AcquireReply{Granted: true, Token: reply[1]}, nil
	}
	return backend.AcquireReply{Remaining: remaining(reply[1]), Waits: reply[0] == 0}, nil
}

// HandOver implements [backend.QueueStore].
func (s relay) HandOver(ctx context.Context, r backend.HandOverRequest) (backend.HandOverReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.HandOverReply{}, err
	}
	channel := channelOf(r.Name)
	args := HandOverArgs{
		Owner: r.Owner, Successor: r.Successor, Lease: r.Lease, Fenced: r.Fenced, Yield: r.Yield,
		Track: s.adapter.Features().Tracking, Keep: r.Lease + nextKept, Publish: s.publish(), Counts: s.counts(),
	}
	if s.subs.Listens(channel) {
		args.Own = 1
		if r.Waits {
			args.Tag = s.tag
		}
	}
	reply, err := s.adapter.HandOver(ctx, HandOverKeys{Lock: r.Name, Channel: channel, Next: nextKey(r.Name),
		Token: tokenKey(r.Name)}, args)
	if left := leftIn[[]int64](err); left != nil {
		name := r.Name
		return backend.HandOverReply{}, behind(left, func(reply []int64, err error) (backend.HandOverReply, error) {
			return s.handedOver(name, reply, err)
		})
	}
	return s.handedOver(r.Name, reply, err)
}

func (s relay) handedOver(name string, reply []int64, err error) (backend.HandOverReply, error) {
	s.seen.Forget(name)
	switch {
	case err != nil:
		err = s.faultOf(err, true)
		if backend.FaultOf(err).MayHaveRun {
			s.seen.Exclude(name, time.Now())
		}
		return backend.HandOverReply{}, err
	case len(reply) != 2 || reply[0] < 0 || reply[0] > 3:
		return backend.HandOverReply{}, strange("hand_over", reply)
	}
	return backend.HandOverReply{Held: reply[0] > 0, Waits: reply[0] == 2, Granted: reply[0] == 3, Token: reply[1]}, nil
}

// StepBack implements [backend.QueueStore].
func (s relay) StepBack(ctx context.Context, t backend.Topic) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.adapter.StepBack(ctx, StepBackKeys{Lock: t.Name, Channel: channelOf(t.Name), Next: nextKey(t.Name)},
		StepBackArgs{Tag: s.tag, Publish: s.publish()})
	return s.fault(err)
}

// ignoredPayload is published to wake Java only, which parses it as 0: the clients of mortise that
// are to wake are told elsewhere.
const ignoredPayload = "00"

// message hands on what was published on the channel of a topic.
func (s *core) message(t backend.Topic, payload string) {
	if !heeds(t.Kind, payload) {
		return
	}
	if turns, is := s.handler.(backend.TurnHandler); is && t.Kind == backend.KindLock {
		if next, passed := turn(payload, s.tag); passed {
			turns.Passed(t, next)
			return
		}
	}
	s.handler.Released(t)
}

// turn is what a message on a plain lock's channel says to the client called tag, if it is another's turn.
// Whatever is not of that form is a release like any other.
func turn(payload, tag string) (next backend.Turn, passed bool) {
	if len(payload) != 2*tagLen+4 || payload[:tagLen] == tag || strings.Trim(payload, "0123456789") != "" {
		return backend.Turn{}, false
	}
	others, _ := strconv.Atoi(payload[2*tagLen:])
	return backend.Turn{Second: payload[tagLen:2*tagLen] == tag, Waiting: others}, true
}
