package mortise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// whoKey is the key of the caller's name.
type whoKey struct{}

// journal writes down what an observer is told.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) observer() Observer {
	return Observer{
		Waiting: func(e WaitingEvent) { j.add("%s %s waiting, %v", e.Kind, e.Name, e.Context.Value(whoKey{})) },
		Acquired: func(e AcquiredEvent) {
			j.add("%s %s acquired: lease %d, holds %d, contended %v, %v", e.Kind, e.Name, e.Lease, e.Holds, e.Contended, e.Context.Value(whoKey{}))
		},
		NotAcquired: func(e NotAcquiredEvent) {
			j.add("%s %s not acquired: lease %d, contended %v, not acquired %v", e.Kind, e.Name, e.Lease, e.Contended, errors.Is(e.Err, ErrNotAcquired))
		},
		Renewed: func(e RenewedEvent) { j.add("%s %s renewed", e.Kind, e.Name) },
		Lost: func(e LostEvent) {
			j.add("%s %s lost: lease %d, %v", e.Kind, e.Name, e.Lease, errors.Is(e.Err, ErrLost))
		},
		Released: func(e ReleasedEvent) { j.add("%s %s released: lease %d, %v", e.Kind, e.Name, e.Lease, e.Err) },
	}
}

func TestAnObserverIsToldWhoseEventItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		c, err := New(memory.New(), WithObserver(j.observer()))
		must(t, err)
		defer c.Close()
		who := func(s string) context.Context { return context.WithValue(t.Context(), whoKey{}, s) }
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			got := j.take()
			slices.Sort(got) // what a release set free may be told before the release is
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got\n%q, want\n%q", got, want)
			}
		}
		outer := need(c.Lock(who("a"), "n", WithLease(time.Minute)))(t)
		inner := need(c.Lock(outer.Context(), "n", WithLease(time.Minute)))(t)
		expect("lock n acquired: lease 1, holds 1, contended false, a", "lock n acquired: lease 2, holds 2, contended false, a")

		c.TryLock(who("b"), "n")
		expect("lock n not acquired: lease 0, contended false, not acquired true")

		got := make(chan *Lease)
		go func() { l, _ := c.Lock(who("c"), "n", WithLease(time.Second)); got <- l }()
		expect("lock n waiting, c")
		inner.Unlock(t.Context())
		outer.Unlock(t.Context())
		third := <-got
		expect("lock n released: lease 2, <nil>", "lock n released: lease 1, <nil>", "lock n acquired: lease 3, holds 1, contended true, c")
		time.Sleep(2 * time.Second)
		expect("lock n lost: lease 3, true")
		if third.Unlock(t.Context()); len(j.take()) != 1 {
			t.Error("an Unlock of a lost lease is told as well")
		}

		write := c.RW().Write
		w := need(write.Lock(who("d"), "rw"))(t)
		time.Sleep(11 * time.Second)
		w.Unlock(t.Context())
		expect("write rw acquired: lease 4, holds 1, contended false, d", "write rw renewed", "write rw released: lease 4, <nil>")

		l := c.CountDownLatch("latch")
		l.TrySet(t.Context(), 1)
		open := make(chan error)
		go func() { open <- l.Wait(who("e")) }()
		expect("latch latch waiting, e")
		l.CountDown(t.Context())
		<-open
		expect("latch latch acquired: lease 0, holds 0, contended true, e")
	})
}

// The store's answer took so long that the lease is over by the time Lock returns.
func TestALeaseIsToldAsAcquiredBeforeItIsToldAsLost(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var j journal
			o := j.observer()
			told := o.Acquired
			o.Acquired = func(e AcquiredEvent) { time.Sleep(time.Second); told(e) } // an observer that is too slow
			c := on(t, memory.New(), WithObserver(o))
			if _, err := c.Lock(t.Context(), "n", WithLease(100*time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := fmt.Sprintf("%.15q", j.take()); got != `["lock n acquired" "lock n lost: le"]` {
				t.Error(got)
			}
		})
	}
}

func TestObserversCallsEachInOrder(t *testing.T) {
	var said []string
	say := func(s string) Observer {
		return Observer{Lost: func(LostEvent) { said = append(said, s) }}
	}
	all := Observers(say("a"), Observer{Renewed: func(RenewedEvent) {}}, say("b"))
	all.Lost(LostEvent{})
	if fmt.Sprint(said) != "[a b]" || all.Renewed == nil || all.Acquired != nil {
		t.Error(said, all)
	}
}
