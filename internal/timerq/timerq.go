// Package timerq runs tasks at their times: a heap of timers with one goroutine.
package timerq

import (
	"container/heap"
	"sync"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

const (
	// fireBatch bounds the tasks that run before the lock is released, and so the delay of the effects that Unlock
	// carries out.
	fireBatch = 256
	// clockInterval is how often both clocks are read while there is a timer: the runtime's timers stand
	// still while a machine sleeps.
	clockInterval = time.Second
	// wallJump is the least gain of the wall clock on the monotonic clock that counts as sleep of the machine. A
	// clock that is slewed gains less.
	wallJump = 10 * time.Millisecond
)

// Task is the work of a timer. Fire is called when the timer is due, with the queue's lock; for another call it puts
// the timer again.
type Task interface{ Fire(now clock.Instant) }

// Sleeper is a Task whose time goes on while the machine sleeps.
type Sleeper interface {
	Task
	// Slept notes that the wall clock gained d on the monotonic clock, and returns the new time of the timer.
	Slept(d time.Duration) (at int64)
}

// Func is a function as a Task.
type Func func(now clock.Instant)

// Fire calls f.
func (f Func) Fire(now clock.Instant) { f(now) }

// Timer is an entry of a Queue. The zero value is not in a queue.
type Timer struct {
	at   int64 // monotonic nanoseconds
	pos  int   // position in the heap, from 1; 0: not in the heap
	task Task
}

// Waits reports whether the timer is in the queue.
func (t *Timer) Waits() bool { return t.pos != 0 }

// Hooks connect a queue with its owner.
type Hooks struct {
	// Locker guards the queue and all that tasks change. Its Unlock may carry out effects that tasks have noted.
	sync.Locker
	// Idle is called with the lock after all due tasks have fired. It may be nil.
	Idle func(now clock.Instant)
	// Done ends the goroutine.
	Done <-chan struct{}
}

// Queue is a queue of timers, guarded by Hooks.Locker. Its goroutine starts with the first timer.
type Queue struct {
	clock   clock.Clock
	hooks   Hooks
	entries timers
	armed   int64 // when the goroutine wakes by itself: only an earlier timer rouses it
	started bool
	rouse   chan struct{} // wakes the goroutine; capacity 1
	stopped chan struct{} // closed when the goroutine has ended
	ahead   int64         // the wall clock less the monotonic clock, when last read
}

// New returns an empty queue.
func New(k clock.Clock, hooks Hooks) *Queue {
	return &Queue{
		clock: k, hooks: hooks, ahead: k.Epoch().UnixNano(), armed: clock.Never,
		rouse: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
}

// Len returns the number of timers.
func (q *Queue) Len() int { return len(q.entries) }

// Put sets a timer to call task at a monotonic time. A timer that is in the queue is moved.
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

// First returns the task that is due next, and its time; nil if there is no timer.
func (q *Queue) First() (task Task, at int64) {
	if len(q.entries) == 0 {
		return nil, clock.Never
	}
	return q.entries[0].task, q.entries[0].at
}

// DueAt returns the monotonic time at which the first of the two clocks reaches i, if the wall clock's lead stays as
// it was when last read.
func (q *Queue) DueAt(i clock.Instant) int64 { return min(i.Mono, i.Wall-q.ahead) }

// Hasten moves later timers to the given time, except for Sleepers' timers. The goroutine notices within a second.
func (q *Queue) Hasten(at int64) {
	for _, t := range q.entries {
		if _, sleeps := t.task.(Sleeper); !sleeps {
			t.at = min(t.at, at)
		}
	}
	heap.Init(&q.entries)
}

// Stop keeps the goroutine from being started. It returns a channel that is closed when the goroutine has ended; nil
// if the goroutine never ran. Stop does not end the goroutine: Hooks.Done does.
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

// fire calls at most fireBatch due tasks. It returns whether more tasks are due, or for how long to sleep.
func (q *Queue) fire() (sleep time.Duration, more bool) {
	q.hooks.Lock()
	defer q.hooks.Unlock()
	planned := q.armed
	q.armed = 0 // the goroutine is awake: Put need not rouse it
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
		// A timer has roused the goroutine early, and may be removed already: a caller that locks and unlocks in a loop
		// puts and removes a timer each time. Its next timer must not rouse the goroutine again.
		q.armed = min(q.armed, planned, now.Mono+int64(clockInterval))
	}
	if q.armed == clock.Never {
		return time.Hour, false
	}
	return max(min(time.Duration(q.armed-now.Mono), clockInterval), 0), false
}

// due reports whether a timer is due.
func (q *Queue) due(now clock.Instant) bool { return len(q.entries) > 0 && q.entries[0].at <= now.Mono }

// notice moves the timers of Sleepers if the wall clock has gained on the monotonic clock.
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

// timers is a heap ordered by time, for container/heap.
type timers []*Timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at < h[j].at }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}

// Push implements heap.Interface.
func (h *timers) Push(x any) {
	t := x.(*Timer)
	*h = append(*h, t)
	t.pos = len(*h)
}

// Pop implements heap.Interface.
func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.pos = 0
	return t
}
