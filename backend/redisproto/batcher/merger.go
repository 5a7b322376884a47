package batcher

import (
	"context"
	"sync"
)

// Reply is the reply to one item of a command for several items.
type Reply interface {
	~struct {
		Value int64
		Err   error
	}
}

// Merger sends items ready at the same time by one command for all of them: a command costs the
// server, and the client library, about as much as the work for a single item.
type Merger[I any, R Reply] struct {
	batcher *Batcher[*item[I]]
	send    Sender[I, R]
	calls   sync.Pool // of *item[I]
	batches sync.Pool // of *merged[I, R]
}

// Sender says how a [Merger] sends items.
type Sender[I any, R Reply] struct {
	// Most bounds the number of items in a command.
	Most int
	// Many sends a command for several items, and One a command for a single item.
	Many func(ctx context.Context, items []I, out []R)
	One  func(item I) (int64, error)
	// Again reports whether an item must be sent by itself, by the reply to the command for several
	// items: such a reply says that nothing was done.
	Again func(value int64, err error) bool
}

// item is one caller's.
type item[I any] struct {
	item  I
	value int64
	err   error
}

// merged is what a command for several takes and answers.
type merged[I any, R Reply] struct {
	items []I
	out   []R
}

// NewMerger makes a merger.
func NewMerger[I any, R Reply](send Sender[I, R]) *Merger[I, R] {
	m := &Merger[I, R]{send: send}
	m.batcher = newLimited(send.Most, m.deliver)
	m.calls.New = func() any { return new(item[I]) }
	m.batches.New = func() any { return new(merged[I, R]) }
	return m
}

// Lead is [Batcher.Lead]: the caller then sends its item by [Sender.One], and calls Led. Leaves
// reports whether the caller can leave its own item.
func (m *Merger[I, R]) Lead(ctx context.Context, leaves bool) (alone bool) {
	if leaves {
		return m.batcher.leads()
	}
	_, alone = m.batcher.Lead(ctx)
	return alone
}

// Led is [Batcher.Led].
func (m *Merger[I, R]) Led() { m.batcher.Led() }

// Do sends an item. If ctx ends before the reply, left gets a value once the reply has arrived, and
// reply returns the reply.
func (m *Merger[I, R]) Do(ctx context.Context, i I) (value int64, left *Left, err error) {
	c := m.calls.Get().(*item[I])
	c.item = i
	if done := m.batcher.Do(ctx, c); done != nil {
		return 0, &Left{done, func() (int64, error) { return c.value, c.err }}, nil
	}
	value, err = c.value, c.err
	*c = item[I]{}
	m.calls.Put(c)
	return value, nil, err
}

// Left is a call whose caller has left.
type Left struct {
	Done  <-chan struct{}       // gets one value when the reply has arrived
	Reply func() (int64, error) // the outcome of the call, afterwards
}

// Close is [Batcher.Close].
func (m *Merger[I, R]) Close() { m.batcher.Close() }

// deliver sends calls by one command, and a lone call by its own, as the calls that are to be sent again.
func (m *Merger[I, R]) deliver(ctx context.Context, calls []*item[I]) {
	if len(calls) == 1 {
		calls[0].value, calls[0].err = m.send.One(calls[0].item)
		return
	}
	b := m.batches.Get().(*merged[I, R])
	for _, c := range calls {
		b.items = append(b.items, c.item)
	}
	b.out = append(b.out, make([]R, len(calls))...)
	m.send.Many(ctx, b.items, b.out)
	var alone sync.WaitGroup
	for i, c := range calls {
		r := struct {
			Value int64
			Err   error
		}(b.out[i])
		if c.value, c.err = r.Value, r.Err; m.send.Again(r.Value, r.Err) {
			alone.Go(func() { c.value, c.err = m.send.One(c.item) })
		}
	}
	alone.Wait()
	clear(b.items)
	clear(b.out)
	b.items, b.out = b.items[:0], b.out[:0]
	m.batches.Put(b)
}
