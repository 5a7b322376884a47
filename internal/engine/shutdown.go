package engine

import (
	"context"
	"fmt"

	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Shutdown refuses new locks, wakes waiters, and waits for the Unlocks of leases that are held, until ctx ends. Leases
// that remain then end, and their locks are left to run out. A second call waits for the first and returns the same;
// when its own ctx ends earlier, so does the waiting of the first.
func (e *Engine) Shutdown(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := e.Usable(); err != nil {
		return fail.New("shutdown", "", err)
	}
	idle, first := e.shut()
	if !first {
		return e.calls.shutAgain(ctx)
	}
	var cause error
	select {
	case <-idle:
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case cause = <-e.calls.hurry:
	}
	left, stopped := e.endLeases()
	var errs []error
	if left > 0 {
		errs = append(errs, fmt.Errorf("%d locks were still held and are left to run out: %w", left, cause))
	}
	e.cancel()
	if stopped != nil {
		<-stopped
	}
	errs = append(errs, e.store.Close(), e.announce.Close(ctx, cause, e.calls.hurry))
	for _, err := range errs {
		if err != nil {
			e.calls.outcome = fail.New("shutdown", "", err)
			break
		}
	}
	close(e.calls.closed)
	return e.calls.outcome
}

// shut begins to shut down, and returns what is closed when nothing is held nor on its way any more.
func (e *Engine) shut() (idle chan struct{}, first bool) {
	e.lock()
	defer e.unlock()
	if e.calls.shut {
		return nil, false
	}
	c := &e.calls
	c.shut, c.shutAt = true, e.Now()
	close(c.closing)
	e.renewer.timers.Hasten(c.shutAt.Add(time.Second).Mono)
	idle = make(chan struct{})
	c.idle = idle
	c.check()
	for t := range e.names.watches.all {
		e.after(func() { e.names.watches.sync(t) })
	}
	return idle, true
}

// shutAgain waits for the first Shutdown.
func (c *calls) shutAgain(ctx context.Context) error {
	select {
	case <-c.closed:
	case <-ctx.Done():
		select {
		case c.hurry <- context.Cause(ctx):
		case <-c.closed:
		}
		<-c.closed
	}
	return c.outcome
}

// endLeases ends all leases, and says how many those were, and what is closed when the timers have stopped.
func (e *Engine) endLeases() (left int, stopped <-chan struct{}) {
	now := e.Now()
	e.lock()
	defer e.unlock()
	e.calls.over = true
	for _, t := range e.names.tenures() {
		if t.State != lease.Live {
			continue
		}
		left++
		if t.trouble != nil {
			t.trouble.late = 0 // compensating what may yet arrive would release it under running work
		}
		t.endAll(fail.New("lease", t.Key.Name,
			fmt.Errorf("%w while the lock was held; the lock frees itself when its lease runs out", fail.Closed)), false, now)
	}
	return left, e.renewer.timers.Stop()
}

// Inspect reads a record.
func (e *Engine) Inspect(ctx context.Context, family backend.Kind, name string) (backend.Record, error) {
	rec := new(backend.Record)
	err := e.Manage(ctx, "inspect", name, func() (err error) {
		*rec, err = e.store.kinds[topicOf(family, name).Kind].inspect(e.base, name)
		return err
	})
	if err != nil {
		return backend.Record{}, err
	}
	return *rec, nil
}

// ForceUnlock removes a record, and reports whether there was one.
func (e *Engine) ForceUnlock(ctx context.Context, family backend.Kind, name string) (bool, error) {
	removed, t := new(bool), topicOf(family, name)
	err := e.Manage(ctx, "forceunlock", name, func() (err error) {
		e.lock()
		before := e.names.holdersOf(t)
		e.unlock()
		if *removed, err = e.store.kinds[t.Kind].forceRelease(e.base, name); err != nil || !*removed {
			return err
		}
		now := e.Now()
		e.lock()
		defer e.unlock()
		for x := range before {
			x.lose(now, "ForceUnlock removed it")
		}
		if n := e.names.records[t]; n != nil {
			n.Changes++
			for x := range n.Tenures() {
				if !before[ofTenure(x)] {
					ofTenure(x).verify() // it came before the removal, or after
				}
			}
		}
		e.names.verifyEntered(t)
		return nil
	})
	return err == nil && *removed, err
}

// holdersOf are the tenures of this client in a record.
func (s *names) holdersOf(t backend.Topic) map[*tenure]bool {
	all := make(map[*tenure]bool)
	if n := s.records[t]; n != nil {
		for x := range n.Tenures() {
			all[ofTenure(x)] = true
		}
	}
	if t.Kind == backend.KindLock {
		for x := range s.entered[t.Name] {
			all[x] = true
		}
	}
	return all
}

// Manage runs an operation on a name that is no lock of ours.
func (e *Engine) Manage(ctx context.Context, op, name string, f func() error) error {
	err := e.Usable()
	if err == nil {
		err = CheckName(name)
	}
	if err == nil && !e.Begin() {
		err = fail.Closed
	}
	if err != nil {
		return fail.New(op, name, err)
	}
	defer e.End()
	if ctx == nil {
		ctx = context.Background()
	}
	if err := e.Await(ctx, f, nil); err != nil {
		return fail.New(op, name, e.Explain(err))
	}
	return nil
}
