package redisproto

import (
	"context"
	"sync"

	"github.com/mortise-go/mortise/backend"
)

// jointMost bounds how long one script for several callers occupies the server: some 0.1 ms.
const jointMost = 32

// askAlone is what a script for several answers for one that it cannot serve.
const askAlone = -2

// joint sends what is ready at the same time by one script: I is what one caller asks for. It is for
// a server that is no cluster. A script costs the server, and the client library, about as much as what it
// does for one lock.
type joint[I any] struct {
	outbox *Outbox[*jointCall[I]]
	many   func(ctx context.Context, items []I, out []JointReply)
	one    func(item I) (int64, error)
	// refused tells that a server answered with an error, and has done nothing.
	refused func(error) bool

	calls   sync.Pool // of *jointCall[I]
	batches sync.Pool // of *jointBatch[I]
}

// jointCall is one caller's.
type jointCall[I any] struct {
	item  I
	value int64
	err   error
}

type jointBatch[I any] struct {
	items []I
	out   []JointReply
}

func newJoint[I any](many func(context.Context, []I, []JointReply), one func(I) (int64, error), refused func(error) bool) *joint[I] {
	j := &joint[I]{many: many, one: one, refused: refused}
	j.outbox = NewOutbox(j.send)
	j.outbox.share = jointMost
	j.calls.New = func() any { return new(jointCall[I]) }
	j.batches.New = func() any { return new(jointBatch[I]) }
	return j
}

// jointAcquires are acquisitions of plain locks.
func (s *session) jointAcquires() *joint[AcquireManyItem] {
	return newJoint(func(ctx context.Context, items []AcquireManyItem, out []JointReply) {
		s.adapter.AcquireMany(ctx, AcquireManyArgs{Track: s.adapter.Features().Tracking}, items, out)
	}, func(i AcquireManyItem) (int64, error) {
		args := AcquireArgs{Owner: i.Owner, Lease: i.Lease, Track: s.adapter.Features().Tracking}
		return s.adapter.Acquire(context.Background(), AcquireKeys{Lock: i.Lock}, args)
	}, s.refused)
}

// jointReleases are releases of plain locks that set the hold count to zero.
func (s *session) jointReleases() *joint[ReleaseManyItem] {
	return newJoint(func(ctx context.Context, items []ReleaseManyItem, out []JointReply) {
		s.adapter.ReleaseMany(ctx, ReleaseManyArgs{Publish: commandPublish}, items, out)
	}, func(i ReleaseManyItem) (int64, error) {
		args := ReleaseArgs{Owner: i.Owner, Publish: commandPublish}
		return s.adapter.Release(context.Background(), ReleaseKeys{Lock: i.Lock, Channel: i.Channel}, args)
	}, s.refused)
}

func (s *session) refused(err error) bool {
	_, answered := s.adapter.ServerError(err)
	return answered && !backend.FaultOf(s.fault(err)).MayHaveRun
}

// do has item sent. Where ctx ends before its reply is there, the error is a [backend.Left].
func (j *joint[I]) do(ctx context.Context, item I) (int64, error) {
	c := j.calls.Get().(*jointCall[I])
	c.item = item
	if done := j.outbox.Do(ctx, c); done != nil {
		return 0, Leave(done, func() (int64, error) { return c.value, c.err })
	}
	value, err := c.value, c.err
	*c = jointCall[I]{}
	j.calls.Put(c)
	return value, err
}

func (j *joint[I]) close() { j.outbox.Close() }

// send sends calls by one script, and one that is alone by its own. So it does with those that are to
// ask alone, and with all of a script that the server refuses: it may be refused for what one of
// them asks (by an ACL).
func (j *joint[I]) send(ctx context.Context, calls []*jointCall[I]) {
	if len(calls) == 1 {
		calls[0].value, calls[0].err = j.one(calls[0].item)
		return
	}
	b := j.batches.Get().(*jointBatch[I])
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
