package console

import (
	"context"
	"sync"
	"time"
)

// A look reads something from the store, and encodes it. Changed reports whether viewers must be told. A look that
// takes long tells them meanwhile, by soon.
type look func(ctx context.Context, soon func(state []byte)) (state []byte, changed bool)

// feed shares the looks at one thing among its viewers. It has no queue: a viewer takes the newest state when it is
// ready for one, so a slow viewer leaves states out and holds nothing up.
type feed struct {
	stop    context.CancelFunc
	viewers int // under the mutex of feeds

	mu      sync.Mutex
	state   []byte        // the newest; nil before the first
	at      time.Time     // of the newest
	changed chan struct{} // closed when there is a newer one
}

// newest returns the newest state, when it was the store's, and what is closed when there is a newer one.
func (f *feed) newest() ([]byte, time.Time, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.at, f.changed
}

func (f *feed) publish(state []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state, f.at = state, time.Now()
	close(f.changed)
	f.changed = make(chan struct{})
}

// Between two looks there is at least the interval, and rest times the time of the look before: the looks of a feed
// keep a connection to the store busy for a fifth of the time at most.
const rest = 4

// run looks until ctx ends.
func (f *feed) run(ctx context.Context, every time.Duration, look look) {
	for {
		began := time.Now()
		state, changed := look(ctx, f.publish)
		if ctx.Err() != nil {
			return
		}
		if changed {
			f.publish(state)
		}
		pause := time.NewTimer(max(every, rest*time.Since(began)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// feeds are those that have viewers.
type feeds struct {
	every time.Duration
	most  int

	mu     sync.Mutex
	closed bool
	by     map[string]*feed
}

// join adds a viewer to the feed of a key; the first one starts it with a look from begin. The viewer calls leave
// once. There is none after close; nor, of locks, if there are too many. The key of the list is empty.
func (s *feeds) join(key string, begin func() look) (f *feed, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = s.by[key]
	if f == nil {
		if s.closed || key != "" && len(s.by) >= s.most {
			return nil, nil
		}
		ctx, stop := context.WithCancel(context.Background())
		f = &feed{stop: stop, changed: make(chan struct{})}
		s.by[key] = f
		go f.run(ctx, s.every, begin())
	}
	f.viewers++
	return f, func() { s.leave(key, f) }
}

func (s *feeds) leave(key string, f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.viewers--; f.viewers > 0 {
		return
	}
	f.stop()
	if s.by[key] == f {
		delete(s.by, key)
	}
}

// close stops all feeds, and lets no other begin.
func (s *feeds) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, f := range s.by {
		f.stop()
	}
}
