package memory

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

var (
	_ backend.LatchSession     = (*session)(nil)
	_ backend.SemaphoreSession = (*session)(nil)
	_ backend.PermitSession    = (*session)(nil)
)

// A count is a record under its name, as it is a key on Redis: to a lock of that
// name it is foreign data. The permits that are out are a second one, and each
// request that is remembered is a third, which expires.

func outName(name string) string { return "{" + name + "}:timeout" }

func onceName(q backend.CountRequest) string {
	return "mortise:1:once:{" + q.Topic.Name + "}:" + q.ID
}

// countOf finds the count of name; nil if there is none, and an error if name is
// in use for something else.
func (s *Store) countOf(name string) (*record, error) {
	r := s.find(name)
	if r != nil && r.count == nil {
		return nil, wrongKind(r)
	}
	return r, nil
}

// addCount adds to a count, making it if r is nil, and returns what it is then.
func (s *Store) addCount(r *record, name string, n int64) int64 {
	if r == nil {
		r = &record{name: name, foreign: true, count: new(int64), index: -1}
		s.records[name] = r
	}
	*r.count += n
	return *r.count
}

// announce tells those who watch t, and for a semaphore those of either kind: they
// share a channel.
func (s *Store) announce(t backend.Topic) {
	kinds := []backend.Kind{t.Kind}
	if t.Kind != backend.KindLatch {
		kinds = []backend.Kind{backend.KindSemaphore, backend.KindPermits}
	}
	for _, k := range kinds {
		t := backend.Topic{Kind: k, Name: t.Name}
		for x := range s.watchers[t] {
			x.tell(event{released, t})
		}
	}
}

// remember notes that q was carried out.
func (s *Store) remember(q backend.CountRequest, took int64) {
	name := onceName(q)
	if old := s.find(name); old != nil {
		s.remove(old)
	}
	s.put(&record{name: name, foreign: true, took: took}, backend.Remembered)
}

// counting is the beginning of each operation on a count: it locks the store, finds
// the count, and what is remembered of the request. The caller unlocks in any case.
func (x *session) counting(ctx context.Context, q backend.CountRequest) (count, once *record, err error) {
	if err := x.enter(ctx); err != nil {
		return nil, nil, err
	}
	count, err = x.store.countOf(q.Topic.Name)
	if err == nil && q.ID != "" {
		once = x.store.find(onceName(q))
	}
	return count, once, err
}

func (x *session) SetCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	s := x.store
	count, once, err := x.counting(ctx, q)
	defer s.mu.Unlock()
	switch {
	case err != nil:
		return false, err
	case once != nil:
		return once.took == 1, nil
	case count != nil:
		s.remember(q, 0)
		return false, nil
	}
	s.remember(q, 1)
	s.addCount(nil, q.Topic.Name, q.N)
	if q.N > 0 {
		s.announce(q.Topic)
	}
	return true, nil
}

func (x *session) Count(ctx context.Context, t backend.Topic) (int64, error) {
	s := x.store
	count, _, err := x.counting(ctx, backend.CountRequest{Topic: t})
	defer s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if t.Kind == backend.KindPermits {
		if there, ended := s.reclaim(t.Name); ended {
			if there > 0 {
				s.announce(t)
			}
			return there, nil
		}
	}
	if count == nil {
		return 0, nil
	}
	return *count.count, nil
}

func (x *session) CountDown(ctx context.Context, q backend.CountRequest) (int64, error) {
	s := x.store
	count, once, err := x.counting(ctx, q)
	defer s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if once == nil {
		s.remember(q, 1)
	}
	switch {
	case count == nil:
		return 0, nil
	case once != nil:
		return *count.count, nil
	}
	if left := s.addCount(count, q.Topic.Name, -1); left > 0 {
		return left, nil
	}
	s.remove(count)
	s.announce(q.Topic)
	return 0, nil
}

func (x *session) DeleteCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	s := x.store
	count, once, err := x.counting(ctx, q)
	defer s.mu.Unlock()
	switch {
	case err != nil:
		return false, err
	case once != nil:
		return once.took == 1, nil
	case count == nil:
		s.remember(q, 0)
		return false, nil
	}
	s.remember(q, 1)
	s.remove(count)
	s.announce(q.Topic)
	return true, nil
}

func (x *session) AddCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	s := x.store
	count, once, err := x.counting(ctx, q)
	defer s.mu.Unlock()
	switch {
	case err != nil:
		return 0, err
	case once != nil && count == nil:
		return 0, nil
	case once != nil:
		return *count.count, nil
	}
	s.remember(q, 1)
	there := s.addCount(count, q.Topic.Name, q.N)
	if there > 0 && q.N > 0 {
		s.announce(q.Topic)
	}
	return there, nil
}

func (x *session) TakeCount(ctx context.Context, q backend.CountRequest) (backend.TakeReply, error) {
	s := x.store
	count, once, err := x.counting(ctx, q)
	defer s.mu.Unlock()
	if err != nil {
		return backend.TakeReply{}, err
	}
	reply := backend.TakeReply{}
	if count != nil {
		reply.Available = *count.count
	}
	switch {
	case once != nil:
		reply.Granted = once.took == 1
	case reply.Available >= q.N:
		s.remember(q, 1)
		reply.Granted, reply.Available = true, s.addCount(count, q.Topic.Name, -q.N)
	}
	return reply, nil
}

func (x *session) CancelTake(ctx context.Context, q backend.CountRequest) error {
	s := x.store
	count, once, err := x.counting(ctx, q)
	defer s.mu.Unlock()
	if err != nil {
		return err
	}
	took := once != nil && once.took == 1
	s.remember(q, 0)
	if took && count != nil && s.addCount(count, q.Topic.Name, q.N) > 0 {
		s.announce(q.Topic)
	}
	return nil
}

func (x *session) DrainCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	s := x.store
	count, once, err := x.counting(ctx, q)
	defer s.mu.Unlock()
	switch {
	case err != nil:
		return 0, err
	case once != nil:
		return once.took, nil
	case count == nil:
		s.remember(q, 0)
		return 0, nil
	}
	took := *count.count
	s.remember(q, took)
	*count.count = 0
	return took, nil
}

// permit is one that is out.
type permit struct{ ends time.Time }

// Permits implements [backend.PermitSession].
func (x *session) Permits() {}

// permitsOut finds those of name that are out; nil if none is.
func (s *Store) permitsOut(name string) map[string]*permit {
	if r := s.find(outName(name)); r != nil {
		return r.out
	}
	return nil
}

// reclaim puts back those that have ended. It tells whether there were any, and the
// count then.
func (s *Store) reclaim(name string) (there int64, ended bool) {
	now := time.Now()
	out := s.permitsOut(name)
	for id, p := range out {
		if !now.Before(p.ends) {
			s.putBack(name, id, out)
			ended = true
		}
	}
	if ended {
		there = *s.find(name).count
	}
	return there, ended
}

func (s *Store) putBack(name, id string, out map[string]*permit) (there int64) {
	delete(out, id)
	if len(out) == 0 {
		delete(s.records, outName(name))
	}
	return s.addCount(s.find(name), name, 1)
}

func (x *session) acquirePermit(q backend.AcquireRequest) (backend.AcquireReply, error) {
	s := x.store
	t := backend.Topic{Kind: q.Kind, Name: q.Name}
	if _, err := s.countOf(q.Name); err != nil {
		return backend.AcquireReply{}, err
	}
	_, ended := s.reclaim(q.Name)
	count := s.find(q.Name)
	out := s.permitsOut(q.Name)
	reply := backend.AcquireReply{}
	if count != nil {
		reply.Available = *count.count
	}
	switch {
	case out[q.Owner] != nil:
		reply.Granted = true
	case reply.Available > 0:
		if out == nil {
			out = make(map[string]*permit)
			s.records[outName(q.Name)] = &record{name: outName(q.Name), foreign: true, out: out, index: -1}
		}
		out[q.Owner] = &permit{ends: time.Now().Add(q.Lease)}
		reply.Granted, reply.Available = true, s.addCount(count, q.Name, -1)
	default:
		reply.Remaining = -1
		for _, p := range out {
			if left := remaining(p.ends); reply.Remaining < 0 || left < reply.Remaining {
				reply.Remaining = left
			}
		}
	}
	if ended && reply.Available > 0 {
		s.announce(t)
	}
	return reply, nil
}

func (x *session) releasePermit(q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	s := x.store
	out := s.permitsOut(q.Name)
	p := out[q.Owner]
	if p == nil {
		return backend.ReleaseReply{}, nil
	}
	if _, err := s.countOf(q.Name); err != nil {
		return backend.ReleaseReply{}, err
	}
	if s.putBack(q.Name, q.Owner, out) > 0 {
		s.announce(backend.Topic{Kind: q.Kind, Name: q.Name})
	}
	return backend.ReleaseReply{Held: time.Now().Before(p.ends)}, nil
}

func (x *session) renewPermit(q backend.RenewRequest) bool {
	now := time.Now()
	p := x.store.permitsOut(q.Name)[q.Owner]
	if p == nil || !now.Before(p.ends) {
		return false
	}
	if ends := now.Add(q.Lease); ends.After(p.ends) {
		p.ends = ends
	}
	return true
}
