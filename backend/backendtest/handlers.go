package backendtest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
)

// handler is a slog.Handler that calls a function for each line.
type handler func()

func (h handler) Enabled(context.Context, slog.Level) bool  { return true }
func (h handler) Handle(context.Context, slog.Record) error { h(); return nil }
func (h handler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handler) WithGroup(string) slog.Handler             { return h }
func (h handler) lostObserver() mortise.Observer {
	return mortise.Observer{Lost: func(mortise.LostEvent) { h() }}
}
func (h handler) options() (logger, observer mortise.ClientOption) {
	return mortise.WithLogger(slog.New(h)), mortise.WithObserver(h.lostObserver())
}

// handlerTests are about the user's code that the client calls.
var handlerTests = []test{
	{"Rule02_NoContextOutlivesItsLeaseWhileHandlersAreSlow", func(e *env) {
		const leases, lease = 1000, 3 * time.Second
		logger, observer := handler(func() { time.Sleep(2 * time.Millisecond) }).options()
		c := e.client(logger, observer)
		var late atomic.Int32
		var ended sync.WaitGroup
		for i := range leases {
			ended.Add(1)
			l := e.lock(c, background, fmt.Sprintf("n%d", i), mortise.WithLease(lease))
			over := time.Now().Add(lease) // in the store, at the latest
			context.AfterFunc(l.Context(), func() {
				defer ended.Done()
				if time.Since(over) > time.Second { // as long as 500 lines take
					late.Add(1)
				}
			})
		}
		done := make(chan struct{})
		go func() { ended.Wait(); close(done) }()
		e.within("all contexts end", done)
		n := late.Load()
		e.errorIf(n > 0, "%d of %d contexts lived on for a second after their leases were over", n, leases)
	}},
	{"Rule03_LeasesAreRenewedWhileAHandlerNeverReturns", func(e *env) {
		stuck, free := make(chan struct{}), make(chan struct{})
		var once sync.Once
		logger, observer := handler(func() { once.Do(func() { close(stuck) }); <-free }).options()
		c := e.client(logger, observer, mortise.WithWatchdogTimeout(watchdog))
		e.Cleanup(func() { close(free) })
		kept := e.lock(c, background, "kept")
		var lost []*mortise.Lease
		for i := range 20 {
			lost = append(lost, e.brief(c, fmt.Sprintf("lost%d", i), mortise.MinLease))
		}
		e.within("a handler is called", stuck)
		for _, l := range lost {
			e.within("the context of a lost lease ends", l.Context().Done())
			select {
			case err := <-async(l.Err):
				e.is("Err", err, mortise.ErrLost)
			case <-time.After(patience):
				e.Fatal("Err does not return")
			}
		}
		select {
		case <-kept.Context().Done():
			e.Errorf("a lease that is renewed ended beside a handler that does not return: %v", context.Cause(kept.Context()))
		case <-time.After(2 * watchdog):
		}
		s := e.inspect(c, "kept")
		e.errorIf(!s.Held || !s.Mine, "the store says %+v", s)
		e.unlock(kept)
	}},
}
