package backendtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/quorum"
)

// replicas is how many replicas the store has.
func (e *env) replicas() int {
	if s, ok := e.store.(interface{ Replicas() int }); ok {
		return s.Replicas()
	}
	return 0
}

// tooFew is a wait for one replica more than there are.
func (e *env) tooFew() mortise.Option {
	return mortise.WithReplicas(e.replicas()+1, 50*time.Millisecond)
}

// lockers are a client's locks, by kind; those that the backend has.
func (e *env) lockers(c *mortise.Client, s anykind.Store) map[string]mortise.Locker {
	e.Helper()
	all := map[string]mortise.Locker{"plain": c}
	kinds := map[string][]mortise.Option{"fenced": {mortise.Fenced()},
		"polling":       {mortise.Polling(time.Millisecond)},
		"not reentrant": {mortise.NonReentrant()}}
	if s.Capabilities().Fair != nil {
		kinds["fair"] = []mortise.Option{mortise.Fair()}
		kinds["fair and fenced"] = append(kinds["fair"], mortise.Fenced())
	}
	for name, kind := range kinds {
		l := c.With(kind...)
		all[name] = l
	}
	if s.Capabilities().ReadWrite != nil {
		all["read"], all["write"] = c.RW().Read, c.RW().Write
	}
	return all
}

// held reports whether name is held, by whatever kind.
func (e *env) held(s *raw, name string) bool {
	e.Helper()
	kinds := []backend.Kind{backend.KindLock}
	if s.Capabilities().ReadWrite != nil {
		kinds = append(kinds, backend.KindWrite)
	}
	for _, k := range kinds {
		rec, err := s.Inspect(background, backend.Topic{Kind: k, Name: name})
		e.fatalIf(err != nil && !errors.Is(err, backend.ErrWrongKind), "Inspect(%q): %v", name, err)
		if err != nil || rec.Held {
			return true
		}
	}
	return false
}

// replicated is a test that does nothing on a store whose replicas cannot be waited for.
func replicated(run func(e *env, s *raw)) func(*env) {
	return func(e *env) {
		e.Helper()
		if s := e.bare(); s.Capabilities().Replicas {
			run(e, s)
		}
	}
}

// replicaTests are about replicas that are waited for, as many as the store has: none, unless it
// says otherwise.
var replicaTests = []test{
	{"Port_ReplicasThatHaveAGrantAreCounted", func(e *env) {
		s, h := e.session()
		if !s.Capabilities().Replicas {
			return
		}
		requests := map[string]anykind.AcquireRequest{
			"plain":  {},
			"fenced": {Fenced: true},
		}
		if s.Capabilities().Queue != nil {
			s.watch(h, "waits")
			requests["waits"] = anykind.AcquireRequest{Enrols: true}
		}
		if s.Capabilities().Fair != nil {
			requests["fair"] = anykind.AcquireRequest{Kind: backend.KindFair, Wait: long}
			requests["fair and fenced"] = anykind.AcquireRequest{Kind: backend.KindFair, Wait: long, Fenced: true}
		}
		if s.Capabilities().ReadWrite != nil {
			requests["read"] = anykind.AcquireRequest{Kind: backend.KindRead}
			requests["write"] = anykind.AcquireRequest{Kind: backend.KindWrite}
		}
		if s.Capabilities().Delegation != nil {
			s.take("nested", "caller:1", long)
			requests["nested"] = anykind.AcquireRequest{}
		}
		k := e.replicas()
		const brief = 50 * time.Millisecond
		for name, r := range requests {
			r.Name, r.Owner, r.Lease = name, "a:1", long
			ask := func(what string, owner string, replicas int, wait time.Duration) anykind.AcquireReply {
				e.Helper()
				r := r
				r.Owner, r.Replicas, r.ReplicaWait = owner, replicas, wait
				began := time.Now()
				var reply anykind.AcquireReply
				if name == "nested" {
					reply = call(e, s.Enter, backend.EnterRequest{Name: name, Owner: owner, Lease: long,
						Under: "caller:1", Holds: 1, Replication: backend.Replication{Replicas: replicas, ReplicaWait: wait}})
				} else {
					reply = call(e, s.Acquire, r)
				}
				took := time.Since(began)
				e.errorIf(reply.Granted && replicas > k && took < wait,
					"%s, %s: answered after %v, want %v", name, what, took, wait)
				return reply
			}
			if k > 0 {
				got := ask("as many as there are", "a:1", k, patience)
				e.errorIf(!got.Granted || got.Replicas != k, "%s, of %d replicas: %+v", name, k, got)
				got = ask("the same again", "a:1", k, patience)
				e.errorIf(!got.Granted || got.Replicas != k, "%s, the same again, of %d replicas: %+v", name, k, got)
			}
			got := ask("one more than there are", "a:1", k+1, brief)
			e.errorIf(!got.Granted || got.Replicas != k,
				"%s, one more than %d replicas: %+v; want it granted all the same", name, k, got)
			if r.Kind != backend.KindRead {
				e.errorIf(ask("by another", "b:1", k+1, brief).Granted, "%s is granted to another", name)
			}
			e.errorIf(!e.held(s, name), "%s: not held any more", name)
		}
	}},
	{"Port_ReplicasThatHaveAReentryAreCounted", replicated(func(e *env, s *raw) {
		s.take("n", "a:1", long)
		k := e.replicas()
		ask := func(owner string, replicas int, wait time.Duration) backend.HoldsReply {
			e.Helper()
			return call(e, s.SetHolds, anykind.HoldsRequest{Name: "n", Owner: owner, Holds: 2, Lease: long,
				Replicas: replicas, ReplicaWait: wait})
		}
		if k > 0 {
			r := ask("a:1", k, patience)
			e.errorIf(!r.Held || r.Replicas != k, "of %d replicas: %+v", k, r)
		}
		r := ask("a:1", k+1, 50*time.Millisecond)
		e.errorIf(!r.Held || r.Replicas != k, "one more than %d replicas: %+v", k, r)
		r = ask("b:1", k+1, 50*time.Millisecond)
		e.errorIf(r.Held, "of an owner that holds nothing: %+v", r)
		s.heldBy("n", "a:1", 2)
	})},
	{"Rule13_TooFewReplicasAreAnErrorAndLeaveNothing", func(e *env) {
		s := e.bare()
		c := e.client()
		k := e.replicas()
		for name, l := range e.lockers(c, s.Store) {
			for what, lock := range map[string]func(context.Context, string, ...mortise.Option) (*mortise.Lease,
				error){"lock": l.Lock, "trylock": l.TryLock} {
				_, err := lock(background, name, e.tooFew())
				if !s.Capabilities().Replicas {
					e.named(err, what, name, mortise.ErrInvalid)
					continue
				}
				e.named(err, what, name, mortise.ErrNotReplicated)
				e.is(what, err, mortise.ErrUnavailable)
				e.errorIf(errors.Is(err, mortise.ErrNotAcquired), "%s: it was acquired: %v", what, err)
				if e.held(s, name) { // confirmed, so that the next may try at once
					e.Errorf("%s, %s: it is held when that returns", name, what)
				}
			}
			if !s.Capabilities().Replicas || k == 0 {
				continue
			}
			lease, err := l.Lock(background, name, mortise.WithReplicas(k, patience))
			if err != nil {
				e.Errorf("%s, with as many replicas as there are: %v", name, err)
				continue
			}
			if err := lease.Err(); err != nil || !e.held(s, name) {
				e.Errorf("%s, with as many replicas as there are: %v", name, err)
			}
			e.unlock(lease)
		}
	}},
	{"Rule13_TooFewReplicasForAPartOfLockAllLeaveNothing", func(e *env) {
		s := e.bare()
		c := e.client()
		want := mortise.ErrNotReplicated
		if !s.Capabilities().Replicas {
			want = mortise.ErrInvalid
		}
		names := []string{"{n}:1", "{n}:2", "{n}:3"}
		parts := mortise.Parts{}.And(c, names...)
		e.is("LockAll", second(parts.Lock(background, e.tooFew())), want)
		for _, name := range names {
			e.free(c, name)
		}
		if k := e.replicas(); k > 0 {
			lease := value(parts.Lock(background, mortise.WithReplicas(k, patience))).in(e)
			e.unlock(lease)
		}
		quorum := value(quorum.New(c, e.client(), e.client())).in(e)
		e.is("Quorum", second(quorum.Lock(background, "n", mortise.WithReplicas(1, time.Second))), mortise.ErrInvalid)
	}},
	{"Rule07_AReentryWithTooFewReplicasIsTakenBackAndTheOuterHoldStays", replicated(func(e *env, s *raw) {
		c := e.client()
		outer := e.lock(c, background, "n")
		e.named(second(c.Lock(outer.Context(), "n", e.tooFew())), "lock", "n", mortise.ErrNotReplicated)
		e.done("the outer lease", outer.Err())
		rec := s.record("n")
		e.errorIf(rec.Holds != 1, "the record is %+v, want one hold", rec)
		if k := e.replicas(); k > 0 {
			inner := e.lock(c, outer.Context(), "n", mortise.WithReplicas(k, patience/2))
			rec := s.record("n")
			e.errorIf(rec.Holds != 2, "the record is %+v, want two holds", rec)
			e.unlock(inner)
		}
		e.unlockLast(c, outer)
	})},
	{"Rule07_ACalleeWithTooFewReplicasHasNotEntered", func(e *env) {
		s := e.bare()
		if can := s.Capabilities(); can.Delegation == nil || !can.Replicas {
			return
		}
		c, callee := e.client(), e.client()
		outer := e.lock(c, background, "n")
		ctx := value(delegation.NewContext(background, callee, delegation.FromContext(outer.Context())...)).in(e)
		e.named(second(callee.Lock(ctx, "n", e.tooFew())), "lock", "n", mortise.ErrNotReplicated)
		e.named(second(c.Lock(outer.Context(), "n", e.tooFew())), "lock", "n", mortise.ErrNotReplicated)
		e.unlock(e.lock(callee, ctx, "n")) // it is the first
		if k := e.replicas(); k > 0 {
			e.unlock(e.lock(callee, ctx, "n", mortise.WithReplicas(k, patience/2)))
		}
		e.done("the caller's lease", outer.Err())
		e.unlockLast(c, outer)
	}},
	{"Rule09_AnAbandonedLockThatWaitsForReplicasLeavesNothing", replicated(func(e *env, s *raw) {
		c := e.client()
		for name, l := range e.lockers(c, s.Store) {
			ctx, cancel := context.WithCancel(background)
			const wait = 6 * time.Second
			got := locking(l, ctx, name, mortise.WithReplicas(e.replicas()+1, wait))
			e.until(name+" is granted, and waits for replicas", func() bool { return e.held(s, name) })
			cancel()
			left := time.Now()
			e.is(name, receive(e, "its caller leaves", got).err, context.Canceled)
			e.tookAtMost(name+": its caller is kept for %v", left, wait/2)
			// Others do not wait for replicas, and are not held up.
			e.unlock(e.lock(c, background, "another"))
			e.tookAtMost(name+": another is held up for %v", left, wait/2)
		}
		for name := range e.lockers(c, s.Store) {
			e.until(name+" is given back", func() bool { return !e.held(s, name) })
		}
	})},
	{"Rule08_AWaiterForReplicasTooIsWokenAndHandedNothing", replicated(func(e *env, s *raw) {
		k := e.replicas()
		c := e.client()
		for name, l := range e.lockers(c, s.Store) {
			if name == "read" {
				continue
			}
			first := e.lock(l, background, name)
			opt := mortise.WithReplicas(max(k, 1), 100*time.Millisecond)
			if k > 0 {
				opt = mortise.WithReplicas(k, patience)
			}
			got := locking(l, background, name, opt)
			e.always(30*time.Millisecond, "it waits", func() bool { return len(got) == 0 })
			e.unlock(first)
			r := receive(e, name+" is had by the waiter", got)
			if k == 0 { // a lock that was handed over would be had
				e.is(name, r.err, mortise.ErrNotReplicated)
			} else if r.err != nil {
				e.Errorf("%s: %v", name, r.err)
			} else {
				e.unlock(r.lease)
			}
			e.errorIf(e.held(s, name), "%s is still held", name)
		}
	})},
}

// RunReplicas runs the tests about replicas; a store that has some has a method Replicas() int.
func RunReplicas(t *testing.T, open func(t *testing.T) Store) {
	about := make(map[string]bool)
	for _, x := range replicaTests {
		about[x.name] = true
	}
	RunSome(t, open, func(name string) bool { return about[name] })
}
