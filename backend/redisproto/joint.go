package redisproto

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/batcher"
)

// jointMost bounds how long one script for several callers occupies the server: some 0.2 ms.
const jointMost = 64

// askAlone is what a script for several answers for a lock that it cannot serve.
const askAlone = -2

// joint sends acquisitions of plain locks, and releases that set the hold count to zero, to a
// server that is no cluster: those that are ready at the same time by one script.
type joint struct {
	*batcher.Merger[JointItem, BatchReply]
	loner Loner // for an item that goes by itself; nil if there is none
}

// do has item sent. Where ctx ends before its reply is there, the error is a [backend.Left].
func (j *joint) do(ctx context.Context, item JointItem) (int64, error) {
	value, left, err := j.Do(ctx, item)
	if left != nil {
		return 0, Leave(left.Done, left.Reply)
	}
	return value, err
}

// Leave makes the error of a call after its caller left: done gets a value when the reply has
// arrived, for reply to read.
func Leave[R any](done <-chan struct{}, reply func() (R, error)) error {
	return &backend.Left[R]{Wait: func() (R, error) { <-done; return reply() }}
}

// joined has what a merger of scripts does with a lone item.
type joined struct{ *core }

// one sends an item by a script of its own. Its caller cannot leave.
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
			if second && s.second.Failed(out[0].Err) { // they went by one script
				s.adapter.Joint(ctx, JointArgs{Publish: commandPublish}, items, out)
			}
		},
		One: joined{s}.one,
		// A script that the server refuses may be refused for what one lock asks (by an ACL), and
		// has done nothing.
		Again: func(value int64, err error) bool {
			return err == nil && value == askAlone || err != nil && s.answered(err) && s.undone(err)
		},
	})}
}
