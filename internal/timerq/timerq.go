// Package timerq is one timer for many things that become due: a heap of times and one goroutine.
package timerq

import (
	"container/heap"
	"sync"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

const (
	// fireBatch bounds the tasks that run under one hold of the lock, and so how late the effects of the
	// first of many come.
	fireBatch = 256
	// clockInterval is how often both clocks are read while there is a timer: the runtime's timers stand
	// still while a machine sleeps.
	clockInterval = time.Second
	// wallJump is by how much the wall clock must gain on the monotonic one to count as sleep. A smaller
	// gain is a clock that is slewed.
	wallJump = 10 * time.Millisecond
)

// Task is called when its timer is due, with the queue's lock. It puts its timer again if it wants another call.
type Task interface{ Fire(now clock.Instant) }

// Sleeper is a Task whose time counts while the machine sleeps.
type Sleeper interface {
	Task
	// Slept tells that the wall clock gained d on the monotonic clock, and returns when the task is due now.
	Slept(d time.Duration) (at int64)
}

// Func is a Task.
type Func func(now clock.Instant)

// Fire calls f.
func (f Func) Fire(now clock.Instant) { f(now) }

// Timer is an entry. The zero value is not in the queue.
type Timer struct {
	at   int64 // monotonic
	pos  int   // in the heap, from 1; 0 when it is not in it
	task Task
}

// Waits reports whether the timer is in the queue.
func (t *Timer) Waits() bool { return t.pos != 0 }

// Hooks is what the queue is embedded in.
type Hooks struct {
	// Locker guards the queue and all that tasks change; its Unlock may carry out what tasks noted.
	sync.Locker
	// Idle is called with the lock after all that was due has fired. It may be nil.
	Idle func(now clock.Instant)
	// Done ends the goroutine.
	Done <-chan struct{}
}

// Queue is guarded by Hooks.Locker. Its goroutine starts with the first timer.
type Queue struct {
	clock   clock.Clock
	hooks   Hooks
	entries timers
	armed   int64 // when the goroutine looks next
	started bool
	rouse   chan struct{}
	stopped chan struct{}
	ahead   int64 // of the wall clock over the monotonic one, when last looked at
}

// New makes a queue.
func New(k clock.Clock, hooks Hooks) *Queue {
	return &Queue{
		clock: k, hooks: hooks, ahead: k.Epoch().UnixNano(), armed: clock.Never,
		rouse: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
}

// Len is the number of timers.
func (q *Queue) Len() int { return len(q.entries) }

// Put has task called at a monotonic time; a timer that is in the queue is moved.
func (q *Queue) Put(t *Timer, at int64, task Task) {
	t.at, t.task = at, task
	if t.pos == 0 {
		heap.Push(&q.entries, t)
	} else {
		heap.Fix(&q.entries, t.pos-1)
	}
	if !q.started {
		q.started = true
		go q.run()
	}
	if at < q.armed {
		q.armed = at
		select {
		case q.rouse <- struct{}{}:
		default:
		}
	}
}

// Remove takes a timer out, if it is in the queue.
func (q *Queue) Remove(t *Timer) {
	if t.pos != 0 {
		heap.Remove(&q.entries, t.pos-1)
	}
}

// First is the task that is due next, and when; nil if there is none.
func (q *Queue) First() (task Task, at int64) {
	if len(q.entries) == 0 {
		return nil, clock.Never
	}
	return q.entries[0].task, q.entries[0].at
}

// DueAt is when either clock reaches i (monotonic), as far as the wall clock's lead is known.
func (q *Queue) DueAt(i clock.Instant) int64 { return min(i.Mono, i.Wall-q.ahead) }

// Hasten has every timer that is no Sleeper's due at a time at the latest. The goroutine notices within a second.
func (q *Queue) Hasten(at int64) {
	for _, t := range q.entries {
		if _, sleeps := t.task.(Sleeper); !sleeps {
			t.at = min(t.at, at)
		}
	}
	heap.Init(&q.entries)
}

// Stop keeps the goroutine from being started, and returns what is closed when it has ended: Hooks.Done ends it.
// Nil if it never ran.
func (q *Queue) Stop() <-chan struct{} {
	if !q.started {
		q.started = true
		return nil
	}
	return q.stopped
}

func (q *Queue) run() {
	defer close(q.stopped)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		sleep, more := q.fire()
		if more {
			continue
		}
		timer.Reset(sleep)
		select {
		case <-timer.C:
		case <-q.rouse:
		case <-q.hooks.Done:
			return
		}
	}
}

// fire calls what is due, up to a batch, and says whether there is more, or for how long to sleep.
func (q *Queue) fire() (sleep time.Duration, more bool) {
	q.hooks.Lock()
	defer q.hooks.Unlock()
	planned := q.armed
	q.armed = 0 // awake: nothing has to rouse it
	now := q.clock.Now()
	q.notice(now)
	for n := 0; n < fireBatch && q.due(now); n++ {
		t := q.entries[0]
		q.Remove(t)
		t.task.Fire(now)
	}
	if q.due(now) {
		return 0, true
	}
	if q.hooks.Idle != nil {
		q.hooks.Idle(now)
	}
	if _, q.armed = q.First(); planned > now.Mono {
		// The timer that roused it may be removed already: a caller that locks and unlocks puts and removes one each time,
		// and the next one must not rouse the goroutine again.
		q.armed = min(q.armed, planned, now.Mono+int64(clockInterval))
	}
	if q.armed == clock.Never {
		return time.Hour, false
	}
	return max(min(time.Duration(q.armed-now.Mono), clockInterval), 0), false
}

// due reports whether a timer is due.
func (q *Queue) due(now clock.Instant) bool { return len(q.entries) > 0 && q.entries[0].at <= now.Mono }

// notice has Sleepers moved where the wall clock has gained on the monotonic one.
func (q *Queue) notice(now clock.Instant) {
	ahead := now.Wall - now.Mono
	slept := ahead - q.ahead
	if slept < int64(wallJump) {
		q.ahead = min(q.ahead, ahead)
		return
	}
	q.ahead = ahead
	for _, t := range q.entries {
		if s, sleeps := t.task.(Sleeper); sleeps {
			t.at = s.Slept(time.Duration(slept))
		}
	}
	heap.Init(&q.entries)
}

// timers is a heap by time, for container/heap.
type timers []*Timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}

// Push appends a timer.
func (h *timers) Push(x any) {
	t := x.(*Timer)
	*h = append(*h, t)
	t.pos = len(*h)
}

// Pop takes the last timer.
func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.pos = 0
	return t
}
