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

// Merger sends items that are ready at the same time by one command. A command costs the server and
// the client library about as much as the work for a single item, so one for several is cheaper.
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
	// Again reports whether an item must be sent once more, by One, after Many returned this reply
	// for it: the reply says that nothing was done for the item.
	Again func(value int64, err error) bool
}

// item is the item of one caller, and its reply.
type item[I any] struct {
	item  I
	value int64
	err   error
}

// merged is the arguments of Sender.Many.
type merged[I any, R Reply] struct {
	items []I
	out   []R
}

// NewMerger returns a Merger.
func NewMerger[I any, R Reply](send Sender[I, R]) *Merger[I, R] {
	m := &Merger[I, R]{send: send}
	m.batcher = newLimited(send.Most, m.deliver)
	m.calls.New = func() any { return new(item[I]) }
	m.batches.New = func() any { return new(merged[I, R]) }
	return m
}

// Lead is [Batcher.Lead]: if it reports true, the caller sends its item by itself, and then calls Led.
// leaves: the caller can leave an item that it sends by itself, so its context may be one that ends.
func (m *Merger[I, R]) Lead(ctx context.Context, leaves bool) (alone bool) {
	if leaves {
		return m.batcher.leads()
	}
	_, alone = m.batcher.Lead(ctx)
	return alone
}

// Led is [Batcher.Led].
func (m *Merger[I, R]) Led() { m.batcher.Led() }

// Do sends an item and returns the reply. If ctx ends before the reply, Do returns a Left at once, and
// the item is sent all the same.
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

// deliver sends several items by Many, and then by One the items that must be sent again. A single item it sends by
// One at once.
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
