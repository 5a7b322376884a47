// Package counters implements latches and semaphores: counts in the store, built on the engine. It also implements the
// claims of ticks and the reading of proclamations, which send their requests in the same way.
package counters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// counted is a name with a count in the store. S is the capability that the backend must have; things names the
// capability in errors.
type counted[S any] struct {
	engine.Counting
	things string
	of     func(*backend.Capabilities) S
}

func count[S any](e *engine.Engine, topic backend.Topic, things string, of func(*backend.Capabilities) S) counted[S] {
	return counted[S]{engine.Counting{Engine: e, Topic: topic}, things, of}
}

func (n *counted[S]) fail(op string, err error) error { return fail.New(op, n.Topic.Name, err) }

// Made returns an error for a zero value, which no client has made.
func (n *counted[S]) Made() error {
	if n.of == nil {
		return errUnmade
	}
	return nil
}

var errUnmade = fail.Invalidf("the semaphore or latch is nil or a zero value; make it with the method of a Client")

func (n *counted[S]) session() (s S, err error) {
	if n.of == nil {
		return s, errUnmade
	}
	if n.Usable() == nil {
		s = n.of(n.Capabilities())
	}
	return s, n.Can(any(s) != nil, n.things)
}

// ask sends the request q, a query or a change, for a caller that may leave before the answer.
func ask[S, Q, R any](
	ctx context.Context, n *counted[S], op string, send func(S, context.Context, Q) (R, error), q Q,
) (R, error) {
	var none R
	s, err := n.session()
	if err != nil {
		return none, n.fail(op, err)
	}
	reply := new(R)
	err = n.Ask(ctx, op, func(ctx context.Context) (err error) {
		*reply, err = send(s, ctx, q)
		return err
	})
	if err != nil {
		return none, err
	}
	return *reply, nil
}

// finish sends the change q even if the caller leaves, and repeats it in the background if it is not confirmed.
func finish[S, R any](
	ctx context.Context, n *counted[S], op string, send func(S, context.Context, backend.CountRequest) (R, error),
	q backend.CountRequest,
) error {
	s, err := n.session()
	if checked := engine.CheckName(n.Topic.Name); checked != nil && n.of != nil {
		err = checked
	}
	if err == nil {
		err = n.SendReliably(ctx, op, func(ctx context.Context) error {
			_, err := send(s, ctx, q)
			return err
		})
	}
	if err != nil {
		return n.fail(op, err)
	}
	return nil
}

// setter is the part of the port that both kinds of semaphores have.
type setter interface {
	SetCount(ctx context.Context, r backend.CountRequest) (bool, error)
	AddCount(ctx context.Context, r backend.CountRequest) (int64, error)
	DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error)
	Count(ctx context.Context, t backend.Topic) (int64, error)
}

// permits implements the operations that both kinds of semaphores have.
type permits[S setter] struct{ counted[S] }

// TrySet sets the count to n permits if there is no count, and reports whether it did.
func (p *permits[S]) TrySet(ctx context.Context, n int) (bool, error) {
	if n < 0 || n > backend.MaxCount {
		return false, p.fail("setpermits", fail.Invalidf("%d permits; between 0 and %d", n, backend.MaxCount))
	}
	return ask(ctx, &p.counted, "setpermits", S.SetCount, p.Change(int64(n)))
}

// Add adds delta permits; a negative delta removes permits.
func (p *permits[S]) Add(ctx context.Context, delta int) error {
	if delta == 0 || delta > backend.MaxCount || delta < -backend.MaxCount {
		return p.fail("addpermits", fail.Invalidf("to add %d permits; at most %d, and not 0", delta, backend.MaxCount))
	}
	_, err := ask(ctx, &p.counted, "addpermits", S.AddCount, p.Change(int64(delta)))
	return err
}

// Delete removes the count and the permits in use, and reports whether there was a count.
func (p *permits[S]) Delete(ctx context.Context) (bool, error) {
	return ask(ctx, &p.counted, "delete", S.DeleteCount, p.Change(0))
}

// Available returns the number of free permits.
func (p *permits[S]) Available(ctx context.Context) (int, error) {
	free, err := ask(ctx, &p.counted, "available", S.Count, p.Topic)
	return int(free), err
}

// CountDownLatch is a count down to zero.
type CountDownLatch struct {
	counted[backend.CountDownLatchStore]
}

// NewCountDownLatch returns the latch of a name.
func NewCountDownLatch(e *engine.Engine, name string) CountDownLatch {
	return CountDownLatch{count(e, backend.Topic{Kind: backend.KindCountDownLatch, Name: name}, "latches",
		func(can *backend.Capabilities) backend.CountDownLatchStore { return can.CountDownLatches })}
}

// TrySet sets the count, if the latch is not set, and reports whether it did.
func (l *CountDownLatch) TrySet(ctx context.Context, n int64) (bool, error) {
	if n < 1 || n > backend.MaxLatch {
		return false, l.fail("set", fail.Invalidf("a count of %d; between 1 and %d", n, int64(backend.MaxLatch)))
	}
	return ask(ctx, &l.counted, "set", backend.CountDownLatchStore.SetCount, l.Change(n))
}

// CountDown subtracts one from the count.
func (l *CountDownLatch) CountDown(ctx context.Context) error {
	return finish(ctx, &l.counted, "countdown", backend.CountDownLatchStore.CountDown, l.Change(1))
}

// Count returns the count.
func (l *CountDownLatch) Count(ctx context.Context) (int64, error) {
	return ask(ctx, &l.counted, "count", backend.CountDownLatchStore.Count, l.Topic)
}

// Delete removes the latch, and reports whether it was set.
func (l *CountDownLatch) Delete(ctx context.Context) (bool, error) {
	return ask(ctx, &l.counted, "delete", backend.CountDownLatchStore.DeleteCount, l.Change(0))
}

// Wait returns when the count is zero.
func (l *CountDownLatch) Wait(ctx context.Context, r engine.Request) error {
	w, cancel, err := l.Waiting(ctx, r)
	if err != nil {
		return err
	}
	defer cancel()
	s, err := l.session()
	if err != nil {
		return r.Fail(err)
	}
	return w.Answered(w.For(0, func() (engine.Answer, error) { return l.zero(w.Context(), s) }, nil))
}

// zero reads the count once, for all calls of this client that wait by now: if the count is zero, it serves them all.
func (l *CountDownLatch) zero(wait context.Context, s backend.CountDownLatchStore) (engine.Answer, error) {
	l.Hold()
	defer l.End()
	came := l.Joined()
	left := new(int64)
	err := l.Await(wait, func() error {
		return l.Send(wait, func(ctx context.Context) (err error) {
			*left, err = s.Count(ctx, l.Topic)
			return err
		})
	}, nil)
	switch {
	case fail.IsGone(err):
		return engine.Answer{}, err
	case err != nil:
		return engine.Answer{Failure: err}, nil
	case *left > 0:
		return engine.Answer{Left: -1}, nil
	}
	l.Serve(came)
	return engine.Answer{Got: true, More: true}, nil // More: a call that joined later asks
}

// CountingSemaphore is a number of permits without owners.
type CountingSemaphore struct {
	permits[backend.CountingSemaphoreStore]
}

// NewCountingSemaphore returns the counting semaphore of a name.
func NewCountingSemaphore(e *engine.Engine, name string) CountingSemaphore {
	return CountingSemaphore{permits[backend.CountingSemaphoreStore]{
		count(e, backend.Topic{Kind: backend.KindCountingSemaphore, Name: name}, "counting semaphores",
			func(can *backend.Capabilities) backend.CountingSemaphoreStore { return can.CountingSemaphores })}}
}

// Acquire takes n permits. With r.Try it does not wait for them.
func (s *CountingSemaphore) Acquire(ctx context.Context, n int, r engine.Request) error {
	w, cancel, err := s.Waiting(ctx, r)
	if err != nil {
		return err
	}
	defer cancel()
	if err := checkPermits(n); err != nil {
		return r.Fail(err)
	}
	session, err := s.session()
	if err != nil {
		return r.Fail(err)
	}
	s.Hold() // Shutdown waits until giveBack below has begun
	defer s.End()
	var granted backend.CountRequest // the request that took the permits, of this call or of another waiter
	keeps := false
	defer func() {
		if granted.ID != "" && !keeps { // the wait is over, or the observer panics
			s.giveBack(session, granted)
		}
	}()
	take := func() (engine.Answer, error) {
		q := s.Change(int64(n))
		a, err := s.take(w, session, q)
		if a.Got {
			granted = q
		}
		return a, err
	}
	if r.Try {
		err = s.tryOnce(&r, take)
	} else {
		err = w.For(int32(n), take, func(q backend.CountRequest) { granted = q })
	}
	err = w.Answered(err)
	keeps = err == nil
	return err
}

func checkPermits(n int) error {
	if n < 1 || n > backend.MaxCount {
		return fail.Invalidf("%d permits; between 1 and %d", n, backend.MaxCount)
	}
	return nil
}

func (s *CountingSemaphore) tryOnce(r *engine.Request, take func() (engine.Answer, error)) error {
	if s.Shut() {
		return r.Fail(fail.Closed)
	}
	a, err := take()
	switch {
	case err != nil:
		return r.Fail(err)
	case a.Failure != nil:
		return r.Fail(s.Explain(a.Failure))
	case !a.Got:
		return r.Refused(0)
	}
	return nil
}

// taking is the outcome of a request for permits.
type taking struct {
	backend.TakeReply
	late bool // an attempt of unknown outcome may have taken the permits, or may take them yet
	err  error
}

// take asks for permits once. It cancels the request if the outcome is unknown, the caller has left, or the client is
// shutting down.
func (s *CountingSemaphore) take(
	w *engine.Waiting, session backend.CountingSemaphoreStore, q backend.CountRequest,
) (engine.Answer, error) {
	wait, t := w.Context(), new(taking)
	q.Enrolment = w.Enrolment()
	s.Hold()
	defer s.End()
	err := s.Await(wait, func() error {
		s.Owe() // until undo below has begun, where it is needed
		*t = s.send(wait, session, q)
		if !t.Granted && t.err == nil {
			s.offer(session, &t.TakeReply, q.Enrolment)
		}
		return nil
	}, func() {
		defer s.Settle()
		if s.undo(session, q, t); t.Enrolled {
			w.Enrolled(q.Enrolment)
		}
	})
	if err != nil {
		return engine.Answer{}, err
	}
	defer s.Settle()
	switch {
	case !t.Granted:
		s.undo(session, q, t)
		left := t.Remaining
		if left == 0 {
			left = -1
		}
		return engine.Answer{Left: left, Failure: t.err, Enrolled: t.Enrolled, First: t.First}, nil
	case wait.Err() != nil:
		s.undo(session, q, t)
		return engine.Answer{}, fail.Gone(wait)
	case s.Shut():
		s.giveBack(session, q)
		return engine.Answer{Failure: fail.Closing}, nil
	}
	return engine.Answer{Got: true, More: t.Available > 0, Enrolled: t.Enrolled}, nil
}

// offer is called after the refusal of the first waiter: the free permits are too few for it. offer takes permits for
// the first waiter behind it that wants no more than are free, gives them to that waiter, and goes on with the rest.
// Its requests carry entry, the first waiter's entry in the store's queue. If no waiter wants as few, it sends no
// request. If entry.Least is as few nevertheless, a waiter has left, and the store may keep permits for it: then the
// first waiter asks again.
func (s *CountingSemaphore) offer(
	session backend.CountingSemaphoreStore, r *backend.TakeReply, entry backend.Enrolment,
) {
	free, refused := r.Available, true
	for {
		w, ok := s.Taker(free)
		if !ok {
			if refused && r.Enrolled && entry.Least <= free {
				s.Notify()
			}
			return
		}
		q := s.Change(int64(w.Wants))
		q.Enrolment, q.Stays = entry, true
		t := s.send(s.Base(), session, q)
		if !t.Granted || !s.Give(w, q) {
			s.undo(session, q, &t)
		}
		if t.err != nil {
			s.Notify() // the first waiter asks again, and handles the failure of the store
			return
		}
		free, refused, r.QueueReply = t.Available, !t.Granted, t.QueueReply
	}
}

// send asks for permits, and repeats the request after a temporary failure, until wait ends. If the session panics,
// send cancels the request.
func (s *CountingSemaphore) send(
	wait context.Context, session backend.CountingSemaphoreStore, q backend.CountRequest,
) (t taking) {
	returned := false
	defer func() {
		if !returned {
			s.giveBack(session, q)
		}
	}()
	t.err = s.Send(wait, func(ctx context.Context) (err error) {
		t.TakeReply, err = session.TakeCount(ctx, q)
		if err != nil && backend.FaultOf(err).MayHaveRun {
			t.late, q.Again = true, true
		}
		return err
	})
	returned = true
	return t
}

// undo cancels, in the background, a request that took permits, or may take them yet.
func (s *CountingSemaphore) undo(session backend.CountingSemaphoreStore, q backend.CountRequest, t *taking) {
	if t.Granted || t.late {
		s.giveBack(session, q)
	}
}

func (s *CountingSemaphore) giveBack(session backend.CountingSemaphoreStore, q backend.CountRequest) {
	s.RetryInBackground("acquire", func(ctx context.Context) error { return session.CancelTake(ctx, q) })
}

// Release releases n permits.
func (s *CountingSemaphore) Release(ctx context.Context, n int) error {
	if err := checkPermits(n); err != nil {
		return s.fail("release", err)
	}
	return finish(ctx, &s.counted, "release", backend.CountingSemaphoreStore.AddCount, s.Change(int64(n)))
}

// Drain takes all free permits, and returns their number.
func (s *CountingSemaphore) Drain(ctx context.Context) (int, error) {
	took, err := ask(ctx, &s.counted, "drain", backend.CountingSemaphoreStore.DrainCount, s.Change(0))
	return int(took), err
}

// Semaphore is a number of permits with a lease each.
type Semaphore struct {
	permits[backend.SemaphoreStore]
}

// NewSemaphore returns the semaphore of a name.
func NewSemaphore(e *engine.Engine, name string) Semaphore {
	return Semaphore{permits[backend.SemaphoreStore]{
		count(e, backend.Topic{Kind: backend.KindSemaphore, Name: name}, "semaphores",
			func(can *backend.Capabilities) backend.SemaphoreStore { return can.Semaphores })}}
}

// SetLimit sets the number of permits, free and in use, and then limit, even if the caller has left.
func (p *Semaphore) SetLimit(ctx context.Context, n int, limit *engine.Limit) error {
	if n < 0 || n > backend.MaxCount {
		return p.fail("setpermits", fail.Invalidf("%d permits; between 0 and %d", n, backend.MaxCount))
	}
	s, err := p.session()
	if err != nil {
		return p.fail("setpermits", err)
	}
	q := p.Change(int64(n))
	return p.Replace(ctx, "setpermits", limit, q.N, func(ctx context.Context) error {
		_, err := s.SetLimit(ctx, q)
		return err
	})
}

// Inspect reads the count and the permits in use, and lists at most most of them.
func (p *Semaphore) Inspect(ctx context.Context, most int) (backend.PermitsRecord, error) {
	read := func(s backend.SemaphoreStore, ctx context.Context, name string) (backend.PermitsRecord, error) {
		return s.InspectPermits(ctx, name, most)
	}
	return ask(ctx, &p.counted, "inspect", read, p.Topic.Name)
}

// CheckWants returns an error if Acquire cannot take n permits under a declared limit; 0 declares none.
func (p *Semaphore) CheckWants(n, limit int) error {
	switch {
	case limit < 0 || limit > backend.MaxCount:
		return fail.Invalidf("a limit of %d permits; between 0, which declares none, and %d", limit, backend.MaxCount)
	case n < 1 || n > backend.MaxPermits:
		return fail.Invalidf("%d permits; between 1 and %d", n, backend.MaxPermits)
	case limit > 0 && n > limit:
		return fail.Invalidf("%d permits of a semaphore with the declared limit %d; the call would wait for ever", n, limit)
	}
	return nil
}

// Check returns an error if the backend has no semaphores.
func (p *Semaphore) Check() error {
	_, err := p.session()
	return err
}

// Release releases permits by their ids.
func (p *Semaphore) Release(ctx context.Context, ids []string) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := p.Made(); err != nil {
		return p.fail("release", err)
	}
	if len(ids) == 0 {
		return p.fail("release", fail.Invalidf("no id"))
	}
	left := make(map[string]bool, len(ids))
	for _, id := range ids {
		id = strings.ToLower(id)
		if err := engine.CheckPermitID(id); err != nil {
			return p.fail("release", err)
		}
		left[id] = true
	}
	ours, err := p.ours(left)
	if err != nil {
		return p.fail("release", err)
	}
	var errs []error
	for _, h := range ours {
		errs = append(errs, Released(h.Unlock(ctx)))
	}
	for _, owner := range owners(left) {
		if err := p.releaseOther(ctx, owner); err != nil {
			errs = append(errs, p.fail("release", err))
		}
	}
	return oneOf(errs)
}

// ours removes the ids of permits that this client holds from ids, and returns the holds of these permits.
func (p *Semaphore) ours(ids map[string]bool) (ours []engine.Holding, err error) {
	if p.Usable() != nil {
		return nil, nil
	}
	for id := range ids {
		h, all := p.Permit(id)
		if h == nil {
			continue
		}
		for _, x := range all {
			if !ids[x] {
				return nil, fail.Invalidf("the permit %s was acquired together with %d others, which are released together: "+
					"give all its IDs", fail.Shorten(id), len(all)-1)
			}
			delete(ids, x)
		}
		ours = append(ours, h)
	}
	return ours, nil
}

// owners joins ids into owners, as backend.SemaphoreStore defines them: the ids of an owner have the same length.
func owners(ids map[string]bool) (all []string) {
	sorted := slices.SortedFunc(maps.Keys(ids), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	for n := 0; len(sorted) > 0; sorted = sorted[n:] {
		n = 1
		for n < len(sorted) && n < backend.MaxPermits && len(sorted[n]) == len(sorted[0]) {
			n++
		}
		all = append(all, strings.Join(sorted[:n], ","))
	}
	return all
}

// oneOf returns nil if there is no error, the error if there is one, and all errors joined otherwise.
func oneOf(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// Released returns the error of an Unlock as the error of a release. The error itself stays as it is: an observer may
// have it.
func Released(err error) error {
	e := fail.Of(err)
	if e == nil || e.Op != "unlock" || fail.Public(e) != err { // in the third case a fake's error wraps e
		return err
	}
	released := *e
	released.Op = "release"
	return fail.Public(&released)
}

// releaseOther releases permits that this client does not hold.
func (p *Semaphore) releaseOther(ctx context.Context, owner string) error {
	if err := engine.CheckName(p.Topic.Name); err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return err
	}
	p.Hold()
	defer p.End()
	return p.SendOff(ctx, func() error {
		held, unsure, err := p.SendRelease(p.Topic.Kind, backend.ReleaseRequest{Name: p.Topic.Name, Owner: owner})
		switch {
		case err != nil:
			return p.Explain(err)
		case !held && !unsure:
			return fmt.Errorf("%w: a permit is not out: it was released, has expired, or never was", fail.NotHeld)
		}
		return nil
	}, nil)
}
