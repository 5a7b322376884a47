package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Shutdown refuses new locks, wakes waiters, and waits until nothing is held or running, or ctx ends. Leases that
// remain then end, and their records run out in the store. A second call waits for the first and returns the same
// error; if its own ctx ends earlier, the first stops waiting, too.
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
		cause = fail.Gone(ctx)
	case cause = <-e.calls.hurry:
	}
	left, releasing, stopped := e.endLeases()
	var errs []error
	switch {
	case left > 0:
		errs = append(errs, fmt.Errorf("%d locks were still held and are left to run out: %w", left, cause))
	case releasing > 0:
		errs = append(errs, fmt.Errorf("the store has not confirmed the release of %d locks; "+
			"those that it has not released run out: %w", releasing, cause))
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

// shut begins the shutdown. It returns a channel that is closed when nothing is held or running any more.
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

// shutAgain waits for the first Shutdown. If ctx ends, the first Shutdown stops waiting for Unlocks.
func (c *calls) shutAgain(ctx context.Context) error {
	select {
	case <-c.closed:
	case <-ctx.Done():
		select {
		case c.hurry <- fail.Gone(ctx):
		case <-c.closed:
		}
		<-c.closed
	}
	return c.outcome
}

// endLeases ends all live leases. It returns their number, the number of locks whose release is under way, and a
// channel that is closed when the timers have stopped.
func (e *Engine) endLeases() (left, releasing int, stopped <-chan struct{}) {
	now := e.Now()
	e.lock()
	defer e.unlock()
	e.calls.over = true
	for _, t := range e.names.tenures() {
		if t.State == lease.Releasing {
			releasing++
		}
		if t.State != lease.Live {
			continue
		}
		left++
		if t.trouble != nil {
			t.trouble.unknown = 0 // a compensation would release the lock while the work under it goes on
		}
		t.endAll(fail.New("lease", t.Key.Name,
			fmt.Errorf("%w while the lock was held; the lock frees itself when its lease runs out", fail.Closed)), false, now)
	}
	return left, releasing, e.renewer.timers.Stop()
}

// Inspect reads the record of a name.
func (e *Engine) Inspect(ctx context.Context, family backend.Kind, name string) (backend.Record, error) {
	rec := new(backend.Record)
	err := e.Manage(ctx, "inspect", name, func() error {
		return e.retry.Do(func() (err error) {
			*rec, err = e.store.kinds[topicOf(family, name).Kind].inspect(e.base, name)
			return err
		})
	})
	if err != nil {
		return backend.Record{}, err
	}
	return *rec, nil
}

// ForceUnlock removes the record of a name, and reports whether there was one.
func (e *Engine) ForceUnlock(ctx context.Context, family backend.Kind, name string) (bool, error) {
	removed, t := new(bool), topicOf(family, name)
	err := e.Manage(ctx, "forceunlock", name, func() (err error) {
		e.lock()
		before := e.names.holdersOf(t)
		e.unlock()
		if *removed, err = forceRelease(e, t); err != nil || !*removed {
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
					ofTenure(x).verify() // acquired while the command was on its way: before the removal, or after
				}
			}
		}
		e.names.verifyEntered(t)
		return nil
	})
	return err == nil && *removed, err
}

// forceRelease removes the record of a topic, and reports whether there was one. An attempt that may have run is not
// repeated: another owner may have the lock by then.
func forceRelease(e *Engine, t backend.Topic) (removed bool, err error) {
	unsent := e.retry
	unsent.Temporary = func(err error) bool { return e.retry.Temporary(err) && !backend.FaultOf(err).MayHaveRun }
	err = unsent.Do(func() (err error) {
		removed, err = e.store.kinds[t.Kind].forceRelease(e.base, t.Name)
		return err
	})
	return err == nil && removed, err
}

// holdersOf returns the tenures of this client in a record.
func (s *names) holdersOf(t backend.Topic) map[*tenure]bool {
	all := make(map[*tenure]bool)
	if n := s.records[t]; n != nil {
		for x := range n.Tenures() {
			all[ofTenure(x)] = true
		}
	}
	if t.Kind == backend.KindLock {
		for x := range s.callees[t.Name] {
			all[x] = true
		}
	}
	return all
}

// Manage runs f, which sends commands about a name, for a caller that may leave. It fails after Shutdown has begun.
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
