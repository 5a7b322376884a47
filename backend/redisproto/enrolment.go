package redisproto

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// Semaphores and read-write locks have queues of waiting clients, too. A script that frees permits or a side serves
// the first entries that can be. It grants the owner in an entry, as the queue of a plain lock does. The client of an
// entry without one is notified, and the permits or the side are reserved for it for a second. Exclusion does not
// depend on such an entry: it only makes a script refuse a request that it would have granted. See
// docs/decisions/0063-a-release-wakes-the-clients-that-can-be-served.md,
// docs/decisions/0134-a-release-grants-sides-and-permits.md and scripts/include/wake_queue.lua.

// The marks before an owner in an entry: a side; for permits their number stands there. See
// scripts/include/owner_entry.lua.
const (
	wantsRead  = "r"
	wantsWrite = "w"
)

// enrolment is a request with an enrolment.
type enrolment struct {
	*core
	topic backend.Topic
	backend.Enrolment
	owner string
	wants string // the mark
	sent  time.Time
}

// enrolling begins a request of an owner with an enrolment.
func (s *core) enrolling(t backend.Topic, r backend.Enrolment, owner, wants string) enrolment {
	r.Grants = r.Grants && r.Entry != 0 && s.grants
	if r.Grants {
		s.pairs.asks(t, owner, r.Entry)
	}
	return enrolment{s, t, r, owner, wants, time.Now()}
}

// entry returns the name of the enrolment's entry in scripts; "" if there is none. Lease is what the request asks for.
func (x enrolment) entry(lease time.Duration) string {
	if !x.Grants {
		return entryOf(x.core, x.topic.Kind, x.Enrolment)
	}
	wants := x.wants
	if lease < wire.FirstLease {
		wants += wantsMore
	}
	return x.core.ownerEntry(x.topic.Kind, wants, x.owner)
}

// instead returns the entry of an owner that the session asks for no more; empty if there is none.
func (x enrolment) instead() string {
	if !x.Grants || x.Instead == "" {
		return ""
	}
	return x.core.ownerEntry(x.topic.Kind, wantsOf(x.topic.Kind, x.Instead), x.Instead)
}

// answered notes the outcome of the request, and the server's time in the reply, in microseconds.
func (x enrolment) answered(server int64, err error) {
	switch {
	case !x.Grants:
	case err != nil:
		x.pairs.doubt(x.topic)
	case server > 0:
		x.pairs.note(x.topic, x.sent, micros(server))
	}
}

// ownerEntry returns the entry of an owner. Scripts that take an entry out try all letters and marks.
func (s *core) ownerEntry(k backend.Kind, wants, owner string) string {
	if k == backend.KindSemaphore {
		owner, _, _ = rawIDs(owner) // the request fails if they cannot be decoded
	}
	return queue{s}.told() + queue{s}.tagOf(k) + ":" + wants + ":" + owner
}

// wantsOf returns a mark for an owner of a kind.
func wantsOf(k backend.Kind, owner string) string {
	if k == backend.KindSemaphore {
		return strconv.Itoa(1 + strings.Count(owner, ","))
	}
	return wantsRead
}

// permitsOf returns the owner of which an entry has the ids, joined, and their number as a mark; empty if that cannot
// be one.
func permitsOf(mark, ids string) string {
	n, err := strconv.Atoi(mark)
	if err != nil || n < 1 || n > backend.MaxPermits || len(ids) == 0 || len(ids)%n != 0 {
		return ""
	}
	all := make([]string, n)
	for i, size := 0, len(ids)/n; i < n; i++ {
		all[i] = hex.EncodeToString([]byte(ids[i*size : (i+1)*size]))
	}
	return strings.Join(all, ",")
}

// entryOf returns the name of an enrolment's entry with a number in scripts; "" if there is none.
func entryOf(s *core, k backend.Kind, r backend.Enrolment) string {
	if r.Entry == 0 {
		return ""
	}
	return queue{s}.entryOf(k, r.Entry)
}

// queued decodes the part of a script's reply about the entry: 0 not in the queue, 1 in it, 2 the first.
func queued(reply int64) backend.QueueReply {
	return backend.QueueReply{Enrolled: reply > 0, First: reply == 2}
}

// LeaveQueue implements [backend.EnrolmentStore].
func (s enrolments) LeaveQueue(ctx context.Context, t backend.Topic, number uint64, owner string) error {
	_, err := s.leaves(ctx, t, number, owner)
	return err
}

// leaves takes an entry out of the queue of a topic, or releases what its owner was granted. It reports whether there
// was either.
func (s *core) leaves(ctx context.Context, t backend.Topic, number uint64, owner string) (found bool, err error) {
	entry, q := queue{s}.entryOf(t.Kind, number), backend.ReleaseRequest{Name: t.Name, Owner: owner}
	if owner != "" {
		entry = s.ownerEntry(t.Kind, wantsOf(t.Kind, owner), owner)
	}
	reply, err := s.number(ctx, func() (int64, error) { return s.leaveQueue(ctx, t, entry, owner) })
	var r backend.ReleaseReply
	switch {
	case err != nil || reply == 0 || reply == 1:
		return reply == 1, err
	case reply == wire.LeaveHolding:
		r, err = permits{countingSemaphores{counters{s}}}.Release(ctx, q)
	case reply == wire.LeaveWriting:
		r, err = readWrite{s}.ReleaseWrite(ctx, q)
	case reply == wire.LeaveReading:
		r, err = readWrite{s}.ReleaseRead(ctx, q)
	default:
		err = strange("leave", reply)
	}
	return r.Held, err
}

func (s *core) leaveQueue(ctx context.Context, t backend.Topic, entry, owner string) (int64, error) {
	if t.Kind == backend.KindWrite {
		return s.adapter.RWLeave(ctx, RwLeaveKeys{Lock: t.Name}, RwLeaveArgs{Entry: entry, Owner: owner})
	}
	a := SemaphoreLeaveArgs{Entry: entry}
	if owner != "" {
		var err error
		if a.Ids, a.Count, err = rawIDs(owner); err != nil {
			return 0, err
		}
	}
	return s.adapter.SemaphoreLeave(ctx, SemaphoreLeaveKeys{Semaphore: t.Name}, a)
}
