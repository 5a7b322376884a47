package redisproto

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// The release of a lock with a queue reserves the lock for an entry: the record then has one field, which names the
// entry, and expires after a second at most. The client of the entry is told on a channel of its own beside Redisson's
// channel, and claims the lock. See docs/decisions/0061-a-release-reserves-the-lock-for-the-next-client.md and
// scripts/include/serve_queue.lua.

// entriesKey returns the key of a lock's queue: a zset of entries, with the times of their arrival as scores. Scripts
// build the key from the lock, too: see scripts/include/queue_of.lua. The key is companion("next", name) + "2", built
// in one allocation.
func entriesKey(name string) string {
	if strings.Contains(name, "{") {
		return "mortise:1:next:" + name + ":2"
	}
	return "mortise:1:next:{" + name + "}2"
}

// newTag returns a random name for a session in queues.
func newTag() string { return strconv.FormatUint(rand.Uint64(), 36) }

// ignoredPayload is the prefix of messages of locks that mortise ignores, and Redisson parses as a number. An older
// version of mortise takes "000", or "001" of a read-write lock, for a release.
const ignoredPayload = "00"

// freedPayload is the prefix of messages about a release that served no entry. Redisson parses them as numbers.
const freedPayload = "+"

// The marks before an owner in an entry: what it asks for. See scripts/include/grant_entry.lua.
const (
	wantsLock  = "-"
	wantsToken = "f"
	wantsMore  = "+" // the hash queue:asks has it
)

// wanted returns the mark for a request.
func wanted(lease time.Duration, fenced, told bool) string {
	switch {
	case told || lease < backend.FirstLease:
		return wantsMore
	case fenced:
		return wantsToken
	}
	return wantsLock
}

// entry returns an entry of the session in the queue of a plain lock: a letter for how the session is told (see
// scripts/include/teller.lua), the session's tag, a colon, and the number; where a release grants, a mark, a colon, and
// the owner instead of the number. Scripts that take an entry out try all marks.
func (s queue) entry(number uint64, owner, wants string) string {
	if s.grants {
		return s.told() + s.tag + ":" + wants + ":" + owner
	}
	return s.entryOf(backend.KindLock, number)
}

// ownerIn returns the owner in an entry of a kind, of which the letter and the tag have been cut off; empty if it has
// none.
func ownerIn(k backend.Kind, marked string) string {
	mark, owner, _ := strings.Cut(marked, ":")
	switch k {
	case backend.KindLock:
		if mark != wantsLock && mark != wantsToken && mark != wantsMore {
			return ""
		}
		return owner
	case backend.KindWrite:
		if mark = strings.TrimSuffix(mark, wantsMore); mark != wantsRead && mark != wantsWrite {
			return ""
		}
		return owner
	case backend.KindSemaphore:
		return permitsOf(strings.TrimSuffix(mark, wantsMore), owner)
	}
	return ""
}

func lockTopic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }

// instead returns the entry of an owner that the session asks for no more; empty if there is none.
func (s queue) instead(owner string) string {
	if !s.grants || owner == "" {
		return ""
	}
	return s.entry(0, owner, wantsLock)
}

func (s queue) entryOf(k backend.Kind, number uint64) string {
	var b [40]byte
	return string(strconv.AppendUint(append(append(append(b[:0], s.told()...), s.tagOf(k)...), ':'), number, 36))
}

// told returns the first letter of the session's entries.
func (s queue) told() string {
	switch {
	case !s.counts():
		return "n"
	case s.sharded.Load():
		return "s"
	}
	return "p"
}

// tagOf returns the session's tag for a kind. Both kinds of semaphores share a queue: a dot tells their entries apart.
func (s queue) tagOf(k backend.Kind) string {
	if k == backend.KindSemaphore {
		return s.tag + "."
	}
	return s.tag
}

// A waiting client subscribes to two channels beside Redisson's channel: its own, for messages about its entries, and
// one without messages, whose number of subscribers is the number of mortise's waiting clients.
const (
	ownChannel = "to"
	allChannel = "mortise"
)

// besides returns the topics of the two channels beside the channel of t; none if clients do not queue for t.
func (s queue) besides(t backend.Topic) []backend.Topic {
	own, all := t, t
	own.Owner, all.Owner = ownChannel+":"+s.tagOf(t.Kind), allChannel
	if !hasQueue(t.Kind) {
		return nil
	}
	return []backend.Topic{own, all}
}

// isBeside reports whether t is the topic of a channel that besides describes.
func isBeside(t backend.Topic) bool { return hasQueue(t.Kind) && t.Owner != "" }

// hasQueue reports whether clients that wait for a topic of kind k have entries in a queue.
func hasQueue(k backend.Kind) bool {
	switch k {
	case backend.KindLock, backend.KindWrite, backend.KindSemaphore, backend.KindCountingSemaphore:
		return true
	}
	return false
}

// counts reports whether the command of publish counts all subscribers, and not only those of the node that runs it.
func (s *core) counts() bool {
	return !s.adapter.Features().Cluster || s.single.Load() || s.sharded.Load()
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
	sent := time.Now()
	if s.grants && r.Polls == 0 { // a name that is polled is not watched, and Unsubscribe forgets no pair
		s.pairs.asks(lockTopic(r.Name), r.Owner, r.Entry)
	}
	reply, err := c.Enrol(ctx,
		EnrolKeys{Lock: r.Name, Queue: entriesKey(r.Name), Token: tokenKey(r.Name), Channel: channelOf(r.Name)},
		EnrolArgs{Owner: r.Owner, Lease: r.Lease, Fenced: r.Fenced, Track: s.adapter.Features().Tracking,
			Entry: s.entry(r.Entry, r.Owner, wanted(r.Lease, r.Fenced, r.Told)), Keep: wire.QueueKept,
			Heard: r.Heard, Polls: r.Polls,
			Grants: s.grants, Instead: s.instead(r.Instead)})
	if left := leftIn[[]int64](err); left != nil {
		name := r.Name
		return backend.EnrolReply{}, behind(left, func(reply []int64, err error) (backend.EnrolReply, error) {
			return s.enrolled(name, sent, reply, err)
		})
	}
	return s.enrolled(r.Name, sent, reply, err)
}

func (s queue) enrolled(name string, sent time.Time, reply []int64, err error) (out backend.EnrolReply, _ error) {
	switch {
	case err != nil:
		s.pairs.doubt(lockTopic(name))
		return out, s.faultOf(err, true)
	case len(reply) != 4 || reply[0] < 0 || reply[0] > 2 || reply[1] < -1 || reply[2] < 0:
		return out, strange("enrol", reply)
	case reply[0] == 1:
		out.Granted, out.Token, out.Foreign = true, reply[1], reply[2] == 1
	default:
		s.pairs.note(lockTopic(name), sent, micros(reply[3]))
		out.Remaining, out.Enrolled = remaining(reply[1]), reply[0] == 0
		if out.First = reply[2] == 1; !out.First {
			out.Untold = millis(min(reply[2], maxMillis))
		}
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
		Track: s.adapter.Features().Tracking, Keep: r.Lease + wire.QueueKept,
		Grants: s.grants, Instead: s.instead(r.Instead),
	}
	if args.Entry = s.told(); r.Yield {
		if args.Entry = s.entry(r.Entry, r.Next, wanted(r.Lease, r.Fenced, r.Told)); s.grants {
			s.pairs.asks(lockTopic(r.Name), r.Next, r.Entry)
		}
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
	s.seen.Freed(name)
	switch {
	case err != nil:
		err = s.faultOf(err, true)
		if backend.FaultOf(err).MayHaveRun {
			s.seen.Exclude(name, time.Now())
		}
		return backend.ServeReply{}, err
	case len(reply) != 2 || reply[0] < 0 || reply[0] > wire.ServeGrantedForeign:
		return backend.ServeReply{}, strange("serve", reply)
	case reply[0] == 2:
		listens := s.listens(lockTopic(name))
		return backend.ServeReply{Held: true, Enrolled: listens, Untold: millis(min(max(reply[1], 0), maxMillis))}, nil
	}
	return backend.ServeReply{
		Held: reply[0] > 0, Token: reply[1],
		Granted: reply[0] >= wire.ServeGranted, Foreign: reply[0] == wire.ServeGrantedForeign,
	}, nil
}

// Leave implements [backend.QueueStore].
func (s queue) Leave(ctx context.Context, r backend.LeaveEntryRequest) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	_, err := s.leave(ctx, r)
	return err
}

// leave reports whether the entry was in the queue, or its owner had the lock.
func (s queue) leave(ctx context.Context, r backend.LeaveEntryRequest) (bool, error) {
	args := LeaveQueueArgs{Entry: s.entry(r.Entry, r.Owner, wantsLock), Publish: s.publish()}
	if s.grants {
		args.Owner = r.Owner
	}
	reply, err := s.adapter.LeaveQueue(ctx,
		LeaveQueueKeys{Lock: r.Name, Channel: channelOf(r.Name), Queue: entriesKey(r.Name)}, args)
	return s.wrote(r.Name, "leave_queue", reply, err) // the lock may have been the entry's
}

// message passes a message on the channel of t to the handler.
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

// watching reports to the handler that a topic is watched, once all channels of the topic are subscribed.
func (s queue) watching(t backend.Topic) {
	if hasQueue(t.Kind) {
		if t.Owner = ""; !s.listens(t) {
			return
		}
		s.pairs.doubt(t) // after an interruption the server may be another
	}
	s.handler.Watching(t)
}

// listens reports whether all channels of a topic are subscribed.
func (s queue) listens(t backend.Topic) bool {
	return s.subs.Listens(topicChannel(t)) &&
		!slices.ContainsFunc(s.besides(t), func(x backend.Topic) bool { return !s.subs.Listens(topicChannel(x)) })
}

// turn passes a message on the client's own channel to the handler. The message is one of:
//   - "g" and a grant of the lock to the entry's owner: see grant;
//   - "r" and the entry that the lock is reserved for, or that is to ask;
//   - "n", a time in ms, a colon, and the entry that is now the first in the queue, and asks after that time;
//   - "e" and the entry of a client whose turn is over: it went on only while no other client waited;
//   - "l" and the entry that is the last in the queue: the lock is reserved for a client that may be dead.
//
// A message of another form, or for another client, is ignored.
func (s queue) turn(t backend.Topic, payload string) {
	h, is := s.handler.(backend.QueueHandler)
	own := t.Owner != allChannel
	if t.Owner = ""; !is || !own || payload == "" {
		return
	}
	kind, rest := payload[0], payload[1:]
	after := time.Duration(0)
	var g grant
	switch kind {
	case 'g':
		if g, rest, is = grantIn(rest); !is {
			return
		}
	case 'n':
		var ms string
		ms, rest, _ = strings.Cut(rest, ":")
		n, err := strconv.ParseUint(ms, 10, 32)
		if err != nil {
			return
		}
		after = millis(int64(n))
	}
	name, mine := strings.CutPrefix(rest[min(1, len(rest)):], s.tagOf(t.Kind)+":")
	entry, err := strconv.ParseUint(name, 36, 64)
	known, owned := err == nil, false
	if name = ownerIn(t.Kind, name); s.grants && (name != "" || t.Kind == backend.KindLock) {
		if name == "" {
			return
		}
		p := s.pairs.of(t)
		entry, known, owned = p.entry, p.owner == name, true
	}
	switch {
	case !mine:
	case kind == 'g' && !owned:
	case kind == 'g':
		s.granted(h, t, name, g)
	case kind == 'r' && !known && owned:
		// Reserved for an owner that this session asks for no more: as a grant that is over, it is given back.
		h.Granted(t, backend.Grant{Owner: name, From: longOver(time.Now())})
	case !known:
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
