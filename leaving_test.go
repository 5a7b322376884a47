package mortise

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// Waiters of a fair lock leave at the same cost however many there are.
func TestManyWaitersOfAFairLockLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, memory.New())
		fair := need(c.Locker(Fair()))(t)
		l := need(fair.Lock(t.Context(), "n"))(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				wants(t, errorOf(fair.Lock(ctx, "n")), context.Canceled)
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		must(t, l.Unlock(t.Context()))
		time.Sleep(time.Minute)
		if s := c.engine.Probe().Snapshot(); s.Lines+s.Names != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

// BenchmarkErrWhileCallersLeave reports how long Err takes at the most while 100,000 callers, of a
// store that does not answer, leave at once.
func BenchmarkErrWhileCallersLeave(b *testing.B) {
	for range b.N {
		s := newGated()
		c := on(b, s)
		held := need(c.Lock(b.Context(), "held"))(b)
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
