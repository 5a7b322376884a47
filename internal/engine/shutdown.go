package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	var rest rest
	for idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			cause = fail.Gone(ctx)
		case cause = <-e.calls.hurry:
		}
		rest, idle = e.endLeases(cause != nil)
	}
	e.cancel()
	if rest.stopped != nil {
		<-rest.stopped
	}
	errs := []error{rest.err(cause), e.store.Close(), e.announce.Close(ctx, cause, e.calls.hurry)}
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
	idle = c.waits()
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

// rest is what Shutdown leaves behind.
type rest struct {
	left      int             // leases that were live
	releasing []string        // the names in releases, and in changes of counts, that the store has not confirmed
	asking    int             // acquisitions without an answer
	failure   error           // of a release; nil if none has failed
	stopped   <-chan struct{} // closed when the timers have stopped; nil if they never ran
}

// err returns the error of Shutdown. Cause is why it did not wait any longer; nil if it waited for all that can
// succeed.
func (r *rest) err(cause error) error {
	var all []string
	if r.left > 0 {
		all = append(all, fmt.Sprintf("%d locks were still held and are left to run out", r.left))
	}
	if n := len(r.releasing); n > 0 {
		all = append(all, fmt.Sprintf("the store has not confirmed the release of %d locks (%s); those that it has not "+
			"released run out", n, someOf(r.releasing)))
	}
	if r.asking > 0 {
		all = append(all, fmt.Sprintf("%d requests for locks have no answer; what they acquire runs out", r.asking))
	}
	switch {
	case len(all) == 0:
		return nil
	case cause == nil && r.failure != nil:
		cause = fmt.Errorf("%w: %w", fail.Unavailable, fail.NotCallers(r.failure))
	case r.failure != nil:
		cause = fmt.Errorf("%w; the last failure: %w", cause, fail.NotCallers(r.failure))
	}
	if cause == nil {
		return errors.New(strings.Join(all, "; "))
	}
	return fmt.Errorf("%s: %w", strings.Join(all, "; "), cause)
}

// someOf lists a few names.
func someOf(names []string) string {
	const most = 5
	slices.Sort(names)
	var b strings.Builder
	for i, name := range names[:min(len(names), most)] {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", fail.Shorten(name))
	}
	if more := len(names) - most; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// endLeases ends all live leases, and returns what is left. Unless Shutdown hurries, it does nothing while something is
// held or running, which an Unlock may be that began meanwhile: it returns a channel that is closed afterwards.
func (e *Engine) endLeases(hurries bool) (r rest, idle chan struct{}) {
	now := e.Now()
	e.lock()
	defer e.unlock()
	if !hurries && (e.calls.held > 0 || e.calls.running > 0) {
		return r, e.calls.waits()
	}
	e.calls.over = true
	for _, t := range e.names.tenures() {
		if t.State == lease.Releasing {
			r.releasing = append(r.releasing, t.Key.Name)
		}
		if t.State != lease.Live {
			continue
		}
		r.left++
		t.endAll(fail.New("lease", t.Key.Name,
			fmt.Errorf("%w while the lock was held; the lock frees itself when its lease runs out", fail.Closed)),
			byShutdown, now)
	}
	for name, n := range e.calls.owing {
		r.releasing = append(r.releasing, slices.Repeat([]string{name}, n)...)
	}
	owed, failure := e.renewer.unconfirmed(now)
	r.releasing, r.failure = append(r.releasing, owed...), failure
	r.asking = e.limits.taken()
	r.stopped = e.renewer.timers.Stop()
	return r, nil
}

// given returns ctx, or the background's context for nil.
func given(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}

// Inspect reads the record of a name.
func (e *Engine) Inspect(ctx context.Context, family backend.Kind, name string) (backend.Record, error) {
	rec, wait := new(backend.Record), given(ctx)
	err := e.Manage(ctx, "inspect", name, func() error {
		return e.asking().Do(wait, func() (err error) {
			*rec, err = e.store.kinds[topicOf(family, name).Kind].inspect(e.base, name)
			return err
		})
	})
	if err != nil {
		return backend.Record{}, err
	}
	return *rec, nil
}

// Describe reads what has a name, of any kind.
func (e *Engine) Describe(ctx context.Context, r backend.DescribeRequest) (backend.Description, error) {
	d, wait := new(backend.Description), given(ctx)
	err := e.Manage(ctx, "inspect", r.Name, func() error {
		return e.asking().Do(wait, func() (err error) {
			*d, err = e.store.can.Operator.Describe(e.base, r)
			return err
		})
	})
	if err != nil {
		return backend.Description{}, err
	}
	return *d, nil
}

// List reads a page of the locks whose names begin with a prefix.
func (e *Engine) List(ctx context.Context, r backend.ListRequest) (backend.ListPage, error) {
	page, wait := new(backend.ListPage), given(ctx)
	err := e.Usable()
	if err == nil {
		err = e.Can(e.store.can.List != nil, "list of locks")
	}
	err = e.manage(ctx, "locks", r.Prefix, err, func() error {
		return e.asking().Do(wait, func() (err error) {
			*page, err = e.store.can.List.List(e.base, r)
			return err
		})
	})
	if err != nil {
		return backend.ListPage{}, err
	}
	return *page, nil
}

// ForceUnlock removes the record of a name, and reports whether there was one. With an owner, it removes only what is
// this owner's: see [backend.ForceRequest], and [backend.ReadWriteStore].ForceReleaseRW.
func (e *Engine) ForceUnlock(ctx context.Context, family backend.Kind, name, owner string) (bool, error) {
	removed, t, wait := new(bool), topicOf(family, name), given(ctx)
	err := e.Manage(ctx, "forceunlock", name, func() (err error) {
		e.lock()
		before := e.names.holdersOf(t)
		e.unlock()
		if *removed, err = forceRelease(wait, e, t, owner); err != nil || !*removed {
			return err
		}
		now := e.Now()
		e.lock()
		defer e.unlock()
		for x := range before {
			if owner == "" || t.Kind == backend.KindLock || x.Owner == owner {
				x.lose(now, forced)
			}
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

// forceRelease removes the record of a topic, or what is an owner's in it, and reports whether it removed something. An
// attempt that may have run is not repeated: another owner may have the lock by then.
func forceRelease(ctx context.Context, e *Engine, t backend.Topic, owner string) (removed bool, err error) {
	unsent := e.asking()
	unsent.Temporary = func(err error) bool { return e.retry.Temporary(err) && !backend.FaultOf(err).MayHaveRun }
	err = unsent.Do(ctx, func() (err error) {
		removed, err = e.store.kinds[t.Kind].forceRelease(e.base, backend.ForceRequest{Name: t.Name, Owner: owner})
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
	return e.manage(ctx, op, name, err, f)
}

// manage is Manage after the checks, which found err.
func (e *Engine) manage(ctx context.Context, op, name string, err error, f func() error) error {
	if err == nil && !e.Begin() {
		err = fail.Closed
	}
	if err != nil {
		return fail.New(op, name, err)
	}
	defer e.End()
	if err := e.Await(given(ctx), f, nil); err != nil {
		return fail.New(op, name, e.Explain(err))
	}
	return nil
}
