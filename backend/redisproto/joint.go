package redisproto

import (
	"context"
	"sync"

	"github.com/mortise-go/mortise/backend"
)

// jointMost bounds how long one script for several callers occupies the server: some 0.2 ms.
const jointMost = 64

// askAlone is what a script for several answers for one that it cannot serve.
const askAlone = -2

// joint sends what is ready at the same time by one script. It is for
// a server that is no cluster. A script costs the server, and the client library, about as much as what it
// does for one lock.
type joint struct {
	outbox *Outbox[*jointCall]
	many   func(ctx context.Context, items []JointItem, out []JointReply)
	one    func(item JointItem) (int64, error)
	// refused tells that a server answered with an error, and has done nothing.
	refused func(error) bool

	calls   sync.Pool // of *jointCall
	batches sync.Pool // of *jointBatch
}

// jointCall is one caller's.
type jointCall struct {
	item  JointItem
	value int64
	err   error
}

type jointBatch struct {
	items []JointItem
	out   []JointReply
}

func newJoint(many func(context.Context, []JointItem, []JointReply), one func(JointItem) (int64, error), refused func(error) bool) *joint {
	j := &joint{many: many, one: one, refused: refused}
	j.outbox = NewOutbox(j.send)
	j.outbox.share = jointMost
	j.calls.New = func() any { return new(jointCall) }
	j.batches.New = func() any { return new(jointBatch) }
	return j
}

// newJoint is for acquisitions of plain locks, and releases that set the hold count to zero.
func (s *session) newJoint() *joint {
	return newJoint(func(ctx context.Context, items []JointItem, out []JointReply) {
		s.untracked.Joint(ctx, JointArgs{Publish: commandPublish}, items, out)
	}, func(i JointItem) (int64, error) {
		ctx := context.Background()
		if i.Lease > 0 {
			return s.untracked.Acquire(ctx, AcquireKeys{Lock: i.Lock}, AcquireArgs{Owner: i.Owner, Lease: i.Lease})
		}
		return s.untracked.Release(ctx, ReleaseKeys{Lock: i.Lock, Channel: i.Channel}, ReleaseArgs{Owner: i.Owner, Publish: commandPublish})
	}, s.refused)
}

// answered tells an error that a server answered.
func (s *session) answered(err error) bool {
	_, answered := s.adapter.ServerError(err)
	return answered
}

// undone tells an error after which it is certain that nothing was done.
func (s *session) undone(err error) bool { return !backend.FaultOf(s.fault(err)).MayHaveRun }

func (s *session) refused(err error) bool { return s.answered(err) && s.undone(err) }

// do has item sent. Where ctx ends before its reply is there, the error is a [backend.Left].
func (j *joint) do(ctx context.Context, item JointItem) (int64, error) {
	c := j.calls.Get().(*jointCall)
	c.item = item
	if done := j.outbox.Do(ctx, c); done != nil {
		return 0, Leave(done, func() (int64, error) { return c.value, c.err })
	}
	value, err := c.value, c.err
	*c = jointCall{}
	j.calls.Put(c)
	return value, err
}

func (j *joint) close() { j.outbox.Close() }

// send sends calls by one script, and one that is alone by its own. So it does with those that are to
// ask alone, and with all of a script that the server refuses: it may be refused for what one of
// them asks (by an ACL).
func (j *joint) send(ctx context.Context, calls []*jointCall) {
	if len(calls) == 1 {
		calls[0].value, calls[0].err = j.one(calls[0].item)
		return
	}
	b := j.batches.Get().(*jointBatch)
	for _, c := range calls {
		b.items = append(b.items, c.item)
	}
	b.out = append(b.out, make([]JointReply, len(calls))...)
	j.many(ctx, b.items, b.out)
	var alone sync.WaitGroup
	for i, c := range calls {
		c.value, c.err = b.out[i].Value, b.out[i].Err
		again := c.err == nil && c.value == askAlone
		if again || c.err != nil && j.refused(c.err) {
			alone.Go(func() { c.value, c.err = j.one(c.item) })
		}
	}
	alone.Wait()
	clear(b.items)
	clear(b.out)
	b.items, b.out = b.items[:0], b.out[:0]
	j.batches.Put(b)
}
