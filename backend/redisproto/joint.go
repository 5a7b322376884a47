package redisproto

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/batcher"
)

// jointMost bounds how long one script for several callers occupies the server: some 0.2 ms.
const jointMost = 64

// askAlone is the joint script's reply for an item that must be sent by its own script.
const askAlone = -2

// joint sends acquisitions of plain locks, and releases that set the hold count to zero, to a server that is no
// cluster. Items that are ready at the same time go out in one script.
type joint struct {
	*batcher.Merger[JointItem, BatchReply]
	loner Loner // sends an item by itself; nil if the adapter is none
}

// do sends item. If ctx ends before the reply, the error is a [backend.Left].
func (j *joint) do(ctx context.Context, item JointItem) (int64, error) {
	value, left, err := j.Do(ctx, item)
	if left != nil {
		return 0, Leave(left.Done, left.Reply)
	}
	return value, err
}

// Leave returns the error for a caller that leaves its call. done gets a value when the reply has
// arrived; reply then returns it.
func Leave[R any](done <-chan struct{}, reply func() (R, error)) error {
	return &backend.Left[R]{Wait: func() (R, error) { <-done; return reply() }}
}

// joined is the core with the function for a single item.
type joined struct{ *core }

// one sends an item by its own script. The caller cannot leave it.
func (s joined) one(i JointItem) (value int64, err error) {
	ctx := context.Background()
	for c, second := s.second.Commands(); ; c, second = s.adapter, false {
		if i.Lease > 0 {
			value, err = c.Acquire(ctx, AcquireKeys{Lock: i.Lock}, AcquireArgs{Owner: i.Owner, Lease: i.Lease})
		} else {
			value, err = c.Release(ctx, ReleaseKeys{Lock: i.Lock, Channel: i.Channel},
				ReleaseArgs{Owner: i.Owner, Publish: commandPublish})
		}
		if !second || !s.second.Failed(err) {
			return value, err
		}
	}
}

func newJoint(s *core) *joint {
	loner, _ := s.adapter.(Loner)
	return &joint{loner: loner, Merger: batcher.NewMerger(batcher.Sender[JointItem, BatchReply]{
		Most: jointMost,
		Many: func(ctx context.Context, items []JointItem, out []BatchReply) {
			c, second := s.second.Commands()
			c.Joint(ctx, JointArgs{Publish: commandPublish}, items, out)
			if second && s.second.Failed(out[0].Err) { // all items went in one script
				s.adapter.Joint(ctx, JointArgs{Publish: commandPublish}, items, out)
			}
		},
		One: joined{s}.one,
		// If the server refuses the script, the reason may be one of the locks (an ACL); nothing was done, so
		// each item is sent by itself.
		Again: func(value int64, err error) bool {
			return err == nil && value == askAlone || err != nil && s.answered(err) && s.undone(err)
		},
	})}
}
