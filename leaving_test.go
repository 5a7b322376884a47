package mortise

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// Callers leave the in-flight limiter in any order; each leaves at the same cost. When leaving cost a
// search of the line, this took minutes.
func TestLeavingTheGateCostsTheSameHoweverManyWait(t *testing.T) {
	const waiting = 1_000_000
	g := gate{width: 1}
	if !g.enter() {
		t.Fatal("no place in an empty gate")
	}
	places := make([]func(), waiting)
	for i := range places {
		place := g.line.PushBack(make(chan struct{}))
		places[i] = func() { g.quit(place) }
	}
	rand.Shuffle(len(places), func(i, j int) { places[i], places[j] = places[j], places[i] })
	for _, quit := range places {
		quit()
	}
	if n := g.line.Len(); n != 0 {
		t.Fatalf("%d still wait", n)
	}
	g.leave()
	if g.inside != 0 {
		t.Fatalf("%d inside", g.inside)
	}
}

// A place that is given to a caller that leaves goes to the next.
func TestAPlaceAtTheGateIsNotLostWithACallerThatLeaves(t *testing.T) {
	g := gate{width: 1}
	g.enter()
	first, second := make(chan struct{}), make(chan struct{})
	leaves := g.line.PushBack(first)
	g.line.PushBack(second)
	g.leave()
	<-first
	g.quit(leaves)
	<-second
	g.leave()
	if g.inside != 0 || g.line.Len() != 0 {
		t.Fatalf("%d inside, %d wait", g.inside, g.line.Len())
	}
}

// Waiters of a fair lock leave at the same cost however many there are.
func TestManyWaitersOfAFairLockLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memory.New())
		must(t, err)
		defer c.Close()
		fair, err := c.Kind(Kind{Fair: true})
		must(t, err)
		l, err := fair.Lock(t.Context(), "n")
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				_, err := fair.Lock(ctx, "n")
				wants(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		must(t, l.Unlock(t.Context()))
		time.Sleep(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.lines) + len(c.queues); n != 0 {
			t.Errorf("%d names are left", n)
		}
	})
}

// BenchmarkErrWhileCallersLeave reports how long Err takes at the most while 100,000 callers, of a
// store that does not answer, leave at once.
func BenchmarkErrWhileCallersLeave(b *testing.B) {
	for range b.N {
		s := &slow{store: memory.New(), let: make(chan struct{}, 1)}
		s.let <- struct{}{}
		c, err := New(s)
		if err != nil {
			b.Fatal(err)
		}
		held, err := c.Lock(b.Context(), "held")
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var wg, asked sync.WaitGroup
		for i := range 100_000 {
			wg.Add(1)
			asked.Add(1)
			go func() {
				defer wg.Done()
				asked.Done()
				c.Lock(ctx, fmt.Sprint(i))
			}()
		}
		asked.Wait()
		cancel()
		left := make(chan struct{})
		go func() { wg.Wait(); close(left) }()
		worst := time.Duration(0)
		for over := false; !over; {
			select {
			case <-left:
				over = true
			default:
			}
			start := time.Now()
			if err := held.Err(); err != nil {
				b.Fatal(err)
			}
			worst = max(worst, time.Since(start))
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric(float64(worst.Microseconds()), "us-worst-Err")
		close(s.let)
		c.Close()
	}
}
