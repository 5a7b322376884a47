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

// Enrol implements [backend.QueueStore].
func (s queue) Enrol(ctx context.Context, r backend.AcquireRequest) (backend.EnrolReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.EnrolReply{}, err
	}
	c, w := s.by(r.Replication)
	if w != nil {
		reply, err := s.enrol(ctx, c, r)
		return reply, s.replicated(r.Name, w, &reply.AcquireReply, err)
	}
	return learning(s.core, r.Name, func(r backend.EnrolReply) backend.AcquireReply { return r.AcquireReply },
		func() (backend.EnrolReply, error) { return s.enrol(ctx, c, r) })
}

func (s queue) enrol(ctx context.Context, c Commands, r backend.AcquireRequest) (backend.EnrolReply, error) {
	reply, err := c.Enrol(ctx,
		EnrolKeys{Lock: r.Name, Next: nextKey(r.Name), Token: tokenKey(r.Name)},
		EnrolArgs{Owner: r.Owner, Lease: r.Lease, Fenced: r.Fenced, Track: s.adapter.Features().Tracking,
			Tag: s.tag, Keep: nextKept})
	if left := leftIn[[]int64](err); left != nil {
		return backend.EnrolReply{}, behind(left, s.enrolled)
	}
	return s.enrolled(reply, err)
}

func (s queue) enrolled(reply []int64, err error) (out backend.EnrolReply, _ error) {
	switch {
	case err != nil:
		return out, s.faultOf(err, true)
	case len(reply) != 2 || reply[0] < 0 || reply[0] > 2 || reply[1] < -1:
		return out, strange("enrol", reply)
	case reply[0] == 1:
		out.Granted, out.Token = true, reply[1]
	default:
		out.Remaining, out.Enrolled = remaining(reply[1]), reply[0] == 0
	}
	return out, nil
}

// Serve implements [backend.QueueStore].
func (s queue) Serve(ctx context.Context, r backend.ServeRequest) (backend.ServeReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.ServeReply{}, err
	}
	channel := channelOf(r.Name)
	args := ServeArgs{
		Owner: r.Owner, Successor: r.Next, Lease: r.Lease, Fenced: r.Fenced, Yield: r.Yield,
		Track: s.adapter.Features().Tracking, Keep: r.Lease + nextKept, Publish: s.publish(), Counts: s.counts(),
	}
	if s.subs.Listens(channel) {
		args.Own = 1
		if r.Enrols {
			args.Tag = s.tag
		}
	}
	reply, err := s.adapter.Serve(ctx, ServeKeys{Lock: r.Name, Channel: channel, Next: nextKey(r.Name),
		Token: tokenKey(r.Name)}, args)
	if left := leftIn[[]int64](err); left != nil {
		name := r.Name
		return backend.ServeReply{}, behind(left, func(reply []int64, err error) (backend.ServeReply, error) {
			return s.served(name, reply, err)
		})
	}
	return s.served(r.Name, reply, err)
}

func (s queue) served(name string, reply []int64, err error) (backend.ServeReply, error) {
	s.seen.Forget(name)
	switch {
	case err != nil:
		err = s.faultOf(err, true)
		if backend.FaultOf(err).MayHaveRun {
			s.seen.Exclude(name, time.Now())
		}
		return backend.ServeReply{}, err
	case len(reply) != 2 || reply[0] < 0 || reply[0] > 3:
		return backend.ServeReply{}, strange("serve", reply)
	}
	return backend.ServeReply{Held: reply[0] > 0, Enrolled: reply[0] == 2, Granted: reply[0] == 3, Token: reply[1]}, nil
}

// Leave implements [backend.QueueStore].
func (s queue) Leave(ctx context.Context, name string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.adapter.LeaveQueue(ctx, LeaveQueueKeys{Lock: name, Channel: channelOf(name), Next: nextKey(name)},
		LeaveQueueArgs{Tag: s.tag, Publish: s.publish()})
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
	if h, is := s.handler.(backend.QueueHandler); is && t.Kind == backend.KindLock {
		if place, served := placeIn(payload, s.tag); served {
			h.Served(t, place)
			return
		}
	}
	s.handler.Released(t)
}

// placeIn is what a message on a plain lock's channel says to the client called tag, if another client is to ask.
// Whatever is not of that form is a release like any other.
func placeIn(payload, tag string) (p backend.QueuePlace, served bool) {
	if len(payload) != 2*tagLen+4 || payload[:tagLen] == tag || strings.Trim(payload, "0123456789") != "" {
		return backend.QueuePlace{}, false
	}
	others, _ := strconv.Atoi(payload[2*tagLen:])
	return backend.QueuePlace{Next: payload[tagLen:2*tagLen] == tag, Waiting: others}, true
}
