package redisproto

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// Clients that wait for a semaphore or a read-write lock stand in a queue, too. What sets permits or a side
// free tells the first ones that can be served, and keeps what they were told of for them for a second. Exclusion does
// not depend on it: an ask is granted as before, or refused more often. See
// docs/decisions/0063-a-release-wakes-the-clients-that-can-be-served.md and scripts/include/wake_queue.lua.

// entryOf is what scripts call the entry of an enrolment: "" for none.
func entryOf(s *core, k backend.Kind, r backend.Enrolment) string {
	if r.Entry == 0 {
		return ""
	}
	return queue{s}.entryOf(k, r.Entry)
}

// queued decodes what a script says of an entry.
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
