package redisproto

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// A release of a lock that has a queue reserves it: the record has one field, for the entry that it is
// reserved for, and ends soon. The client of the entry is told on a channel of its own beside Redisson's,
// and claims it. See docs/decisions/0061-a-release-reserves-the-lock-for-the-next-client.md and
// scripts/include/serve_queue.lua.

// entriesKey is the zset of the clients that wait for a lock, by when they came. Its members are entries.
// Scripts build it from the lock, too: see scripts/include/queue_of.lua.
// It is companion("next", name) + "2" in one allocation.
func entriesKey(name string) string {
	if strings.Contains(name, "{") {
		return "mortise:1:next:" + name + ":2"
	}
	return "mortise:1:next:{" + name + "}2"
}

// entriesKept is for how long entriesKey is kept beyond the holder's lease: the waiters ask by then.
const entriesKept = time.Minute

// newTag is what a session is called in queues.
func newTag() string { return strconv.FormatUint(rand.Uint64(), 36) }

// ignoredPayload begins what clients that enrol do not heed, and Java parses as a number. "000", or "001" of a
// read-write lock, wakes the version before, too: it takes that for a release.
const ignoredPayload = "00"

// freedPayload begins what tells of a release that found no entry in the queue. Java parses it as a number.
const freedPayload = "+"

// entry is what an entry of the session is called: how the session is told, its tag, and the number.
func (s queue) entry(number uint64) string { return s.entryOf(backend.KindLock, number) }

func (s queue) entryOf(k backend.Kind, number uint64) string {
	told := "p"
	switch {
	case !s.counts():
		told = "n"
	case s.sharded.Load():
		told = "s"
	}
	var b [40]byte
	return string(strconv.AppendUint(append(append(append(b[:0], told...), s.tagOf(k)...), ':'), number, 36))
}

// tagOf is the tag for a kind. Both kinds of semaphores announce on one channel, and wait in one queue.
func (s queue) tagOf(k backend.Kind) string {
	if k == backend.KindSemaphore {
		return s.tag + "."
	}
	return s.tag
}

// A client that waits listens on two channels beside Redisson's: one of its own, on which it is told of its turn, and
// one that only tells how many clients of mortise there are.
const (
	ownChannel = "to"
	allChannel = "mortise"
)

// besides are the topics of the channels beside that of a topic.
func (s queue) besides(t backend.Topic) []backend.Topic {
	own, all := t, t
	own.Owner, all.Owner = ownChannel+":"+s.tagOf(t.Kind), allChannel
	if !hasQueue(t.Kind) {
		return nil
	}
	return []backend.Topic{own, all}
}

// isBeside reports whether t is one of besides.
func isBeside(t backend.Topic) bool { return hasQueue(t.Kind) && t.Owner != "" }

// hasQueue reports whether clients that wait for topics of a kind stand in queues.
func hasQueue(k backend.Kind) bool {
	switch k {
	case backend.KindLock, backend.KindWrite, backend.KindSemaphore, backend.KindCountingSemaphore:
		return true
	}
	return false
}

// counts reports whether PUBLISH counts all subscribers, and not only those of the node it ran on.
func (s *core) counts() bool {
	return !s.adapter.Features().Cluster || s.sharded.Load()
}

// Enrol implements [backend.QueueStore].
func (s queue) Enrol(ctx context.Context, r backend.EnrolRequest) (backend.EnrolReply, error) {
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

func (s queue) enrol(ctx context.Context, c Commands, r backend.EnrolRequest) (backend.EnrolReply, error) {
	reply, err := c.Enrol(ctx,
		EnrolKeys{Lock: r.Name, Queue: entriesKey(r.Name), Token: tokenKey(r.Name), Channel: channelOf(r.Name)},
		EnrolArgs{Owner: r.Owner, Lease: r.Lease, Fenced: r.Fenced, Track: s.adapter.Features().Tracking,
			Entry: s.entry(r.Entry), Keep: entriesKept, Heard: r.Heard, Polls: r.Polls})
	if left := leftIn[[]int64](err); left != nil {
		return backend.EnrolReply{}, behind(left, s.enrolled)
	}
	return s.enrolled(reply, err)
}

func (s queue) enrolled(reply []int64, err error) (out backend.EnrolReply, _ error) {
	switch {
	case err != nil:
		return out, s.faultOf(err, true)
	case len(reply) != 3 || reply[0] < 0 || reply[0] > 2 || reply[1] < -1:
		return out, strange("enrol", reply)
	case reply[0] == 1:
		out.Granted, out.Token, out.Foreign = true, reply[1], reply[2] == 1
	default:
		out.Remaining, out.Enrolled, out.First = remaining(reply[1]), reply[0] == 0, reply[2] == 1
	}
	return out, nil
}

// Serve implements [backend.QueueStore].
func (s queue) Serve(ctx context.Context, r backend.ServeRequest) (backend.ServeReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.ServeReply{}, err
	}
	args := ServeArgs{
		Owner: r.Owner, Successor: r.Next, Lease: r.Lease, Fenced: r.Fenced, Yield: r.Yield,
		Track: s.adapter.Features().Tracking, Keep: r.Lease + entriesKept,
	}
	if r.Yield {
		args.Entry = s.entry(r.Entry)
	}
	reply, err := s.adapter.Serve(ctx, ServeKeys{Lock: r.Name, Channel: channelOf(r.Name), Queue: entriesKey(r.Name),
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
	case len(reply) != 2 || reply[0] < 0 || reply[0] > 4:
		return backend.ServeReply{}, strange("serve", reply)
	}
	told := s.listens(backend.Topic{Kind: backend.KindLock, Name: name})
	return backend.ServeReply{
		Held: reply[0] > 0, Enrolled: reply[0] == 2 && told, Granted: reply[0] >= 3, Token: reply[1], Foreign: reply[0] == 4,
	}, nil
}

// Leave implements [backend.QueueStore].
func (s queue) Leave(ctx context.Context, name string, entry uint64) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.adapter.LeaveQueue(ctx,
		LeaveQueueKeys{Lock: name, Channel: channelOf(name), Queue: entriesKey(name)},
		LeaveQueueArgs{Entry: s.entry(entry), Publish: s.publish()})
	return mayFree(s.seen, name, s.fault(err)) // a lock that was reserved for the entry
}

// message hands on what was published on the channel of a topic.
func (s *core) message(t backend.Topic, payload string) {
	h, is := s.handler.(backend.QueueHandler)
	switch {
	case isBeside(t):
		queue{s}.turn(t, payload)
	case strings.HasPrefix(payload, freedPayload) && is && hasQueue(t.Kind):
		h.Freed(t)
	case heeds(t.Kind, payload):
		s.handler.Released(t)
	}
}

// watching hands on that a topic is watched, once all its channels are.
func (s queue) watching(t backend.Topic) {
	if hasQueue(t.Kind) {
		if t.Owner = ""; !s.listens(t) {
			return
		}
	}
	s.handler.Watching(t)
}

// listens reports whether all channels of a topic are subscribed.
func (s queue) listens(t backend.Topic) bool {
	return s.subs.Listens(topicChannel(t)) &&
		!slices.ContainsFunc(s.besides(t), func(x backend.Topic) bool { return !s.subs.Listens(topicChannel(x)) })
}

// turn hands on what was published on the client's own channel: "r" and an entry that the lock is reserved for; "n",
// a time in ms, a colon and the entry that is the first in the queue now; "e" and the entry of a client whose turn
// went on while nothing else waited, and is over; "l" and the entry that is the last, where the lock is reserved for
// one that may be dead. A message of another form is ignored.
func (s queue) turn(t backend.Topic, payload string) {
	h, is := s.handler.(backend.QueueHandler)
	own := t.Owner != allChannel
	if t.Owner = ""; !is || !own || payload == "" {
		return
	}
	kind, rest := payload[0], payload[1:]
	after := time.Duration(0)
	if kind == 'n' {
		var ms string
		ms, rest, _ = strings.Cut(rest, ":")
		n, err := strconv.ParseUint(ms, 10, 32)
		if err != nil {
			return
		}
		after = millis(int64(n))
	}
	number, mine := strings.CutPrefix(rest[min(1, len(rest)):], s.tagOf(t.Kind)+":")
	entry, err := strconv.ParseUint(number, 36, 64)
	switch {
	case !mine || err != nil:
	case kind == 'n':
		h.First(t, entry, after)
	case kind == 'r':
		h.Reserved(t, entry)
	case kind == 'e':
		h.Wanted(t, entry)
	case kind == 'l':
		s.handler.Released(t)
	}
}
