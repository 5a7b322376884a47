package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Order is an order as the warehouse has it.
type Order struct {
	ID    string `json:"id"`
	State string `json:"state"` // open, paid, shipped
}

// errState is that of a change that the order's state does not allow.
var errState = errors.New("the order is not in the state for that")

func pay(o *Order) error { return o.move("open", "paid") }

func ship(o *Order) error { return o.move("paid", "shipped") }

func (o *Order) move(from, to string) error {
	if o.State != from {
		return fmt.Errorf("%w: it is %s, not %s", errState, o.State, from)
	}
	o.State = to
	return nil
}

// Warehouse stands for what all replicas share beside Redis: the database, the card company. As those
// do, it lets every request in: it is the locks that keep two requests of one order apart. It counts whether they did.
type Warehouse struct {
	takes time.Duration

	mu      sync.Mutex
	orders  map[string]Order
	inside  map[string]int
	most    int
	written map[string][]string // the states that were written, by order
	stops   map[string]*Stop

	taken  map[string]int // how often goods were taken from the shelf, by order
	taking map[string]int // by how many at once
}

// NewWarehouse makes one in which a change takes that long.
func NewWarehouse(takes time.Duration) *Warehouse {
	return &Warehouse{
		takes: takes, orders: make(map[string]Order), inside: make(map[string]int),
		written: make(map[string][]string), stops: make(map[string]*Stop),
		taken: make(map[string]int), taking: make(map[string]int),
	}
}

// Get returns an order; all of them exist, and are open at first.
func (w *Warehouse) Get(id string) Order {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.get(id)
}

func (w *Warehouse) get(id string) Order {
	if o, ok := w.orders[id]; ok {
		return o
	}
	return Order{ID: id, State: "open"}
}

// Change reads an order, changes it and writes it, unless ctx has ended by then: two at once would pay twice.
// The look at ctx is not the write, though; a database that compares fencing tokens closes that
// gap: see examples/apps/fencedstore.
func (w *Warehouse) Change(ctx context.Context, id string, change func(*Order) error) (Order, error) {
	w.mu.Lock()
	order, stop := w.get(id), w.stops[id]
	delete(w.stops, id)
	w.inside[id]++
	w.most = max(w.most, w.inside[id])
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.inside[id]--
		w.mu.Unlock()
	}()
	if err := change(&order); err != nil {
		return Order{}, err
	}
	moment := time.After(w.takes)
	if stop != nil {
		close(stop.inside)
		moment = stop.released
	}
	select {
	case <-moment:
	case <-ctx.Done():
		return Order{}, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return Order{}, context.Cause(ctx)
	}
	w.orders[id] = order
	w.written[id] = append(w.written[id], order.State)
	return order, nil
}

// Take takes an order's goods from the shelf: twice, if it is asked twice.
func (w *Warehouse) Take(ctx context.Context, id string) error {
	w.mu.Lock()
	w.taking[id]++
	w.most = max(w.most, w.taking[id])
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.taking[id]--
		w.mu.Unlock()
	}()
	select {
	case <-time.After(min(w.takes, 100*time.Millisecond)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken[id]++
	return nil
}

// Taken says how often.
func (w *Warehouse) Taken(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.taken[id]
}

// Stop has a change last until Release, for a show in which something happens meanwhile.
type Stop struct {
	inside   chan struct{} // closed when a request has come there
	released chan time.Time
	release  func()
}

// StopAt stops the next change of an order.
func (w *Warehouse) StopAt(id string) *Stop {
	s := &Stop{inside: make(chan struct{}), released: make(chan time.Time)}
	s.release = sync.OnceFunc(func() { close(s.released) })
	w.mu.Lock()
	w.stops[id] = s
	w.mu.Unlock()
	return s
}

// Release lets it go on. It may be called more than once.
func (s *Stop) Release() { s.release() }

// Reached waits for the change to be there.
func (s *Stop) Reached(ctx context.Context) error {
	select {
	case <-s.inside:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no request has come to the order: %w", context.Cause(ctx))
	}
}

// Verdict says how many changes were written. It fails if two requests were at one order at once, or if that shows in
// what they wrote: an order is paid once, and shipped once after that.
func (w *Warehouse) Verdict() (written int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.most > 1 {
		return 0, fmt.Errorf("%d requests were at one order at once", w.most)
	}
	for id, states := range w.written {
		for i, s := range states {
			if want := []string{"paid", "shipped"}; i >= len(want) || s != want[i] {
				return 0, fmt.Errorf("order %s became %v", id, states)
			}
		}
		if len(states) == 2 && w.taken[id] != 1 {
			return 0, fmt.Errorf("order %s is shipped, its goods were taken %d times", id, w.taken[id])
		}
		written += len(states)
	}
	return written, nil
}
