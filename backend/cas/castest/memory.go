// Package castest holds a [cas.Driver] to its obligations: see [Run]. It also has a driver in memory, [Memory], for
// tests of package cas.
package castest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/cas"
)

// Memory is a store in memory for tests: what a server keeps. Make it with [NewMemory]. Its methods may be called
// concurrently.
type Memory struct {
	mu       sync.Mutex
	values   map[string]value
	versions int64
	down     error
	// ahead is what its clock is ahead of this process's. Clockless: it tells no time of its own.
	ahead     time.Duration
	clockless bool
	// lost is closed when all connections break.
	lost chan struct{}
	// ended is closed for a session that EndSession ends.
	ended    map[string]chan struct{}
	sessions map[string][]func(cas.Heard)
	// Each write is passed to hook before it is carried out, if it is not nil: see SetHook.
	hook func(cas.Swap) Fate
}

// value is the value of a key.
type value struct {
	version int64
	data    []byte
	stamp   time.Duration
	sent    time.Time // for a store without a clock
}

// Fate is what comes of a write.
type Fate int

// What can come of a write.
const (
	// Carried out, and answered.
	Carried Fate = iota
	// LostReply: carried out, and not answered.
	LostReply
	// LostSwap: not carried out, and not answered.
	LostSwap
	// Refused: not carried out, with an error that says so.
	Refused
	// Kept: not carried out, as while a transaction of the store keeps the value as it is.
	Kept
)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{
		values: make(map[string]value), sessions: make(map[string][]func(cas.Heard)), lost: make(chan struct{}),
		ended: make(map[string]chan struct{}),
	}
}

// NewClockless returns an empty store without a clock.
func NewClockless() *Memory {
	m := NewMemory()
	m.clockless = true
	return m
}

// Driver returns a driver of the store.
func (m *Memory) Driver() cas.Driver { return memory{m} }

// Backend returns a backend on the store.
func (m *Memory) Backend() backend.Backend {
	return cas.New(func() (cas.Driver, error) { return m.Driver(), nil })
}

// SetHook has what comes of each write decided by hook; nil: each is carried out. Hook must not call m.
func (m *Memory) SetHook(hook func(cas.Swap) Fate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hook = hook
}

// SetClock sets the store's clock ahead of this process's.
func (m *Memory) SetClock(ahead time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead = ahead
}

// Cut breaks all connections.
func (m *Memory) Cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.lost)
	m.lost = make(chan struct{})
}

// EndSession breaks what a session listens with.
func (m *Memory) EndSession(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.ended[session]; c != nil {
		close(c)
		delete(m.ended, session)
	}
}

// Down breaks and refuses connections until Up.
func (m *Memory) Down() {
	m.mu.Lock()
	m.down = errors.New("down for a test")
	m.mu.Unlock()
	m.Cut()
}

// Up has the store accept connections again.
func (m *Memory) Up() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = nil
}

// Set puts data under a key, as another program would; nil removes it. It takes a while, in which the clock of a
// testing/synctest bubble goes on.
func (m *Memory) Set(key string, data []byte) {
	time.Sleep(10 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.write(cas.Swap{Key: key, Value: data})
}

// Flush removes all values, as another program would.
func (m *Memory) Flush() {
	time.Sleep(10 * time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.values)
}

func (m *Memory) write(q cas.Swap) value {
	m.versions++
	if q.Value == nil {
		delete(m.values, q.Key)
		return value{}
	}
	v := value{m.versions, q.Value, m.now(value{}), time.Now()}
	if m.clockless {
		v.stamp = q.Stamp
	}
	m.values[q.Key] = v
	return v
}

// now returns the time, for a value.
func (m *Memory) now(v value) time.Duration {
	switch {
	case m.clockless && v.version == cas.None:
		return time.Duration(m.versions+1) * cas.NoClockStep
	case m.clockless:
		return v.stamp + time.Since(v.sent)
	}
	return (time.Duration(time.Now().UnixNano()) + m.ahead).Truncate(time.Millisecond)
}

// memory is a driver of a Memory.
type memory struct{ *Memory }

// Limits implements [cas.Driver].
func (m memory) Limits() cas.Limits {
	return cas.Limits{Value: 1 << 20, Batch: 128, Lanes: 2, NoClock: m.clockless}
}

func (m memory) unreachable() error {
	if m.down == nil {
		return nil
	}
	return &backend.Fault{Err: m.down, Remedy: "call Memory.Up", Temporary: true}
}

var cut = &backend.Fault{Err: errors.New("cut for a test"), Remedy: "listen again", Temporary: true}

var errReply = &backend.Fault{Err: errors.New("the reply was lost, for a test"), MayHaveRun: true, Temporary: true}

// Swap implements [cas.Driver].
func (m memory) Swap(ctx context.Context, in []cas.Swap, out []cas.Swapped) error {
	if ctx.Err() != nil {
		return &backend.Fault{Err: ctx.Err(), Temporary: true}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.unreachable(); err != nil {
		return err
	}
	for i, q := range in {
		out[i] = m.swap(q)
	}
	return nil
}

func (m memory) swap(q cas.Swap) (r cas.Swapped) {
	fate := Carried
	if m.hook != nil && q.Version != cas.Look {
		fate = m.hook(q)
	}
	switch fate {
	case Refused:
		r.Err = &backend.Fault{Err: errors.New("refused for a test"), Temporary: true}
		return r
	case LostSwap:
		r.Err = errReply
		return r
	}
	v := m.values[q.Key]
	if r.Done = q.Version == v.version && fate != Kept; r.Done {
		v = m.write(q)
		for _, n := range q.Notices {
			for _, hear := range m.sessions[n.Session] {
				hear(cas.Heard{Text: n.Text, Stamp: v.stamp})
			}
		}
	} else {
		r.Value = v.data
	}
	r.Version, r.Stamp, r.Now = v.version, v.stamp, m.now(v)
	if fate == LostReply {
		return cas.Swapped{Err: errReply}
	}
	return r
}

// Listen implements [cas.Driver].
func (m memory) Listen(ctx context.Context, session string, hear func(cas.Heard)) error {
	m.mu.Lock()
	if err := m.unreachable(); err != nil {
		m.mu.Unlock()
		return err
	}
	heard, on := make(chan cas.Heard, 1<<12), true
	m.sessions[session] = append(m.sessions[session], func(h cas.Heard) {
		if on {
			heard <- h
		}
	})
	at, lost, ended := len(m.sessions[session])-1, m.lost, m.ended[session]
	if ended == nil {
		ended = make(chan struct{})
		m.ended[session] = ended
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		on = false
		if at == len(m.sessions[session])-1 {
			delete(m.sessions, session)
		}
	}()
	hear(cas.Heard{})
	for {
		select {
		case h := <-heard:
			hear(h)
		case <-lost:
			return cut
		case <-ended:
			return cut
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// List implements [cas.Lister].
func (m memory) List(ctx context.Context, prefix, after string, most int) ([]cas.Kept, error) {
	if ctx.Err() != nil {
		return nil, &backend.Fault{Err: ctx.Err(), Temporary: true}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.unreachable(); err != nil {
		return nil, err
	}
	var all []cas.Kept
	for _, key := range slices.Sorted(maps.Keys(m.values)) {
		if key > after && strings.HasPrefix(key, prefix) && len(all) < most {
			v := m.values[key]
			all = append(all, cas.Kept{
				Key: key, Swapped: cas.Swapped{Version: v.version, Value: v.data, Stamp: v.stamp, Now: m.now(v)},
			})
		}
	}
	return all, nil
}
