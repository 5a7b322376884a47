package backendtest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
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
	return mortise.Observer{Lost: func(mortise.Event) { h() }}
}
func (h handler) options() (logger, observer mortise.ClientOption) {
	return mortise.WithLogger(slog.New(h)), mortise.WithObserver(h.lostObserver())
}

// handlerTests are about the user's code that the client calls.
var handlerTests = []test{
	{"Rule02_NoContextOutlivesItsLeaseWhileHandlersAreSlow", func(e *env) {
		const leases, lease = 1000, 3 * time.Second
		ended := make(chan struct{})
		end := sync.OnceFunc(func() { close(ended) })
		e.Cleanup(end)
		logger, observer := handler(func() { <-ended }).options() // slow: no handler returns before all contexts end
		c := e.client(logger, observer)
		var live sync.WaitGroup
		live.Add(leases)
		for i := range leases {
			l := e.lock(c, background, fmt.Sprintf("n%d", i), mortise.WithLease(lease))
			context.AfterFunc(l.Context(), live.Done)
		}
		go func() { live.Wait(); end() }()
		e.within("all contexts end", ended)
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
