package batcher

import (
	"context"
	"sync"
)

// Reply is what a command for several items answers for one of them.
type Reply interface {
	~struct {
		Value int64
		Err   error
	}
}

// Merger sends items that are ready at the same time by one command for all of them: a command
// costs the server, and the client library, about as much as what it does for one item.
type Merger[I any, R Reply] struct {
	batcher *Batcher[*item[I]]
	send    Sender[I, R]
	calls   sync.Pool // of *item[I]
	batches sync.Pool // of *merged[I, R]
}

// Sender is how a [Merger] sends items.
type Sender[I any, R Reply] struct {
	// Most bounds how many items one command has.
	Most int
	// Many sends a command for several items, and One a command for one.
	Many func(ctx context.Context, items []I, out []R)
	One  func(item I) (int64, error)
	// Again reports whether an item is to be sent by itself, after what the command for several answered: that
	// answer says that nothing was done.
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

// Lead is [Batcher.Lead]: the caller then sends its item by [Sender.One], and calls Led. Leaves tells that the caller
// can leave the item that it sends.
func (m *Merger[I, R]) Lead(ctx context.Context, leaves bool) (alone bool) {
	if leaves {
		return m.batcher.leads()
	}
	_, alone = m.batcher.Lead(ctx)
	return alone
}

// Led is [Batcher.Led].
func (m *Merger[I, R]) Led() { m.batcher.Led() }

// Do has an item sent. Where ctx ends before its reply is there, left gets a value once it is, and
// reply returns it.
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

// Left is a call whose caller has gone.
type Left struct {
	Done  <-chan struct{}       // gets one value when the reply is there
	Reply func() (int64, error) // what the call came to, after that
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
