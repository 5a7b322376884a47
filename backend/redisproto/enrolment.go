package redisproto

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// Semaphores and read-write locks have queues of waiting clients, too. A script that frees permits or a side notifies
// the first clients that can be served, and reserves the permits or the side for them for a second. Exclusion does not
// depend on the queue: it only makes a script refuse a request that it would have granted. See
// docs/decisions/0063-a-release-wakes-the-clients-that-can-be-served.md and scripts/include/wake_queue.lua.

// entryOf returns the name of an enrolment's entry in scripts; "" if there is none.
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
func (s enrolments) LeaveQueue(ctx context.Context, t backend.Topic, number uint64) error {
	entry := queue(s).entryOf(t.Kind, number)
	if t.Kind == backend.KindWrite {
		_, err := s.affirmed(ctx, "rw_leave", func() (int64, error) {
			return s.adapter.RWLeave(ctx, RwLeaveKeys{Lock: t.Name}, RwLeaveArgs{Entry: entry})
		})
		return err
	}
	_, err := s.affirmed(ctx, "semaphore_leave", func() (int64, error) {
		return s.adapter.SemaphoreLeave(ctx, SemaphoreLeaveKeys{Semaphore: t.Name}, SemaphoreLeaveArgs{Entry: entry})
	})
	return err
}
