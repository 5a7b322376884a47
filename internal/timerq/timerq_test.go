package timerq

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

// bed is a queue with a log of what fired and when.
type bed struct {
	sync.Mutex
	*Queue
	clock clock.Clock
	log   []string
}

func in(t *testing.T, f func(b *bed)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{clock: clock.New()}
		done := make(chan struct{})
		b.Queue = New(b.clock, Hooks{Locker: b, Done: done})
		f(b)
		close(done)
		b.Lock()
		stopped := b.Stop()
		b.Unlock()
		if stopped != nil {
			<-stopped
		}
	})
}

func (b *bed) note(what string) Task {
	return Func(func(clock.Instant) { b.log = append(b.log, what) })
}

func (b *bed) after(t *Timer, d time.Duration, task Task) {
	b.Lock()
	defer b.Unlock()
	b.Put(t, b.clock.Now().Mono+int64(d), task)
}

func (b *bed) want(t *testing.T, what ...string) {
	t.Helper()
	synctest.Wait()
	b.Lock()
	defer b.Unlock()
	if !slices.Equal(b.log, what) {
		t.Errorf("fired %v, want %v", b.log, what)
	}
}

func TestTimersFireInTheOrderOfTheirTimes(t *testing.T) {
	in(t, func(b *bed) {
		var x, y, z, w Timer
		b.after(&x, 3*time.Second, b.note("third"))
		b.after(&y, time.Second, b.note("first"))
		b.after(&z, 2*time.Second, b.note("second"))
		b.after(&w, time.Second/2, b.note("moved"))
		b.after(&w, 4*time.Second, b.note("moved"))
		b.want(t)
		time.Sleep(time.Second)
		b.want(t, "first")
		b.Lock()
		b.Remove(&z)
		b.Unlock()
		time.Sleep(3 * time.Second)
		b.want(t, "first", "third", "moved")
		if b.Len() != 0 || x.Waits() {
			t.Error("a timer is left")
		}
	})
}

func TestATaskMayPutItsTimerAgain(t *testing.T) {
	in(t, func(b *bed) {
		var x Timer
		n := 0
		var again Func
		again = func(now clock.Instant) {
			if n++; n < 3 {
				b.Put(&x, now.Mono+int64(time.Second), again)
			}
		}
		b.after(&x, 0, again)
		time.Sleep(time.Minute)
		b.want(t)
		b.Lock()
		defer b.Unlock()
		if n != 3 {
			t.Errorf("fired %d times, want 3", n)
		}
	})
}

func TestManyDueTimersFireInBatches(t *testing.T) {
	in(t, func(b *bed) {
		idle, fired := 0, 0
		b.Queue.hooks.Idle = func(clock.Instant) { idle++ }
		timers := make([]Timer, 1000)
		b.Lock()
		for i := range timers {
			b.Put(&timers[i], b.clock.Now().Mono, Func(func(clock.Instant) { fired++ }))
		}
		b.Unlock()
		b.want(t)
		b.Lock()
		defer b.Unlock()
		if fired != 1000 || idle == 0 || idle > 2 { // a rouse may come late
			t.Errorf("%d fired, idle %d times; want 1000, and idle after the last batch only", fired, idle)
		}
	})
}

// sleeper is due at a wall time.
type sleeper struct {
	b     *bed
	at    int64
	fired bool
}

func (s *sleeper) Fire(clock.Instant)               { s.fired = true }
func (s *sleeper) Slept(d time.Duration) (at int64) { s.at -= int64(d); return s.at }

func TestASleepersTimeCountsWhileTheMachineSleeps(t *testing.T) {
	in(t, func(b *bed) {
		var x, y Timer
		s := &sleeper{b: b, at: b.clock.Now().Mono + int64(time.Hour)}
		b.after(&x, time.Hour, s)
		b.after(&y, time.Hour, b.note("no sleeper"))
		time.Sleep(time.Second)
		b.clock.Sleep(2 * time.Hour)
		time.Sleep(time.Second) // both clocks are read once a second
		synctest.Wait()
		b.Lock()
		fired := s.fired
		b.Unlock()
		if !fired {
			t.Error("the sleeper did not fire within a second of waking")
		}
		b.want(t)
	})
}

func TestHastenLeavesSleepersAlone(t *testing.T) {
	in(t, func(b *bed) {
		var x, y Timer
		s := &sleeper{b: b}
		b.after(&x, time.Hour, s)
		b.after(&y, time.Hour, b.note("hastened"))
		b.Lock()
		b.Hasten(b.clock.Now().Mono + int64(time.Second))
		b.Unlock()
		time.Sleep(3 * time.Second)
		b.want(t, "hastened")
		if s.fired {
			t.Error("a lease's end was hastened")
		}
	})
}

func TestTimersThatAreRemovedBeforeTheyAreDueRouseTheGoroutineOnceASecond(t *testing.T) {
	in(t, func(b *bed) {
		woken := 0
		b.Queue.hooks.Idle = func(clock.Instant) { woken++ }
		var x Timer
		for range 3000 {
			b.after(&x, 10*time.Second, b.note("x"))
			b.Lock()
			b.Remove(&x)
			b.Unlock()
			time.Sleep(time.Millisecond)
		}
		b.after(&x, 50*time.Millisecond, b.note("sooner"))
		time.Sleep(50 * time.Millisecond)
		b.want(t, "sooner")
		time.Sleep(time.Minute)
		b.Lock()
		defer b.Unlock()
		if woken > 12 {
			t.Errorf("woken %d times in 3 s of timers that were removed at once", woken)
		}
	})
}
