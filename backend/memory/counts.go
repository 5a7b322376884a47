package memory

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// A count is a record under its name, as it is a key on Redis: to a lock of that
// name it is foreign data. The permits that are out are a second one, and each
// request that is remembered is a third, which expires.

func outName(name string) string { return "{" + name + "}:timeout" }

func onceName(q backend.CountRequest) string {
	return "mortise:1:once:{" + q.Topic.Name + "}:" + q.ID
}

// counts has the operations of latches and semaphores.
type counts struct{ *client }

// find finds the count of name; nil if there is none, and an error if name is
// in use for something else.
func (x counts) find(name string) (*record, error) {
	r := x.store.find(name)
	if r != nil && r.count == nil {
		return nil, wrongKind(r)
	}
	return r, nil
}

// add adds to a count, making it if r is nil, and returns what it is then.
func (x counts) add(r *record, name string, n int64) int64 {
	if r == nil {
		r = &record{name: name, foreign: true, count: new(int64), index: -1}
		x.store.records[name] = r
	}
	*r.count += n
	return *r.count
}

// announce tells the sessions that watch t; for a semaphore those of either kind, which
// share a channel.
func (x counts) announce(t backend.Topic) {
	if t.Kind == backend.KindCountDownLatch {
		x.store.watchers.tell(released, t)
		return
	}
	k := x.store.enrolments
	served := k.tellTakers(t, x.store.find(t.Name).counted()-k.kept(t, entry{}), entry{})
	for _, kind := range []backend.Kind{backend.KindCountingSemaphore, backend.KindSemaphore} {
		k.announce(backend.Topic{Kind: kind, Name: t.Name}, served)
	}
}

// remember notes that q was carried out.
func (x counts) remember(q backend.CountRequest, took int64) {
	name := onceName(q)
	if old := x.store.find(name); old != nil {
		x.store.remove(old)
	}
	x.store.put(&record{name: name, foreign: true, took: took}, backend.Remembered)
}

// counted runs an operation on a count under the store's mutex: with the count, and with what is
// remembered of the request, each nil if there is none.
func counted[R any](ctx context.Context, x counts, q backend.CountRequest, run func(count, once *record) R) (R, error) {
	return locked(ctx, x.client, func(s *Store) (reply R, err error) {
		count, err := x.find(q.Topic.Name)
		if err != nil {
			return reply, err
		}
		var once *record
		if q.ID != "" {
			once = s.find(onceName(q))
		}
		return run(count, once), nil
	})
}

// SetCount implements [backend.CountDownLatchStore].
func (x counts) SetCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return counted(ctx, x, q, func(count, once *record) bool {
		switch {
		case once != nil:
			return once.took == 1
		case count != nil:
			x.remember(q, 0)
			return false
		}
		x.remember(q, 1)
		x.add(nil, q.Topic.Name, q.N)
		if q.N > 0 {
			x.announce(q.Topic)
		}
		return true
	})
}

// Count implements [backend.CountDownLatchStore].
func (x counts) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return counted(ctx, x, backend.CountRequest{Topic: t}, func(count, _ *record) int64 {
		if t.Kind == backend.KindSemaphore {
			if there, ended := (permits{x}).reclaim(t.Name); ended {
				if there > 0 {
					x.announce(t)
				}
				return there
			}
		}
		return count.counted()
	})
}

// CountDown implements [backend.CountDownLatchStore].
func (x counts) CountDown(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x, q, func(count, once *record) int64 {
		if once == nil {
			x.remember(q, 1)
		}
		if count == nil || once != nil {
			return count.counted()
		}
		if left := x.add(count, q.Topic.Name, -1); left > 0 {
			return left
		}
		x.store.remove(count)
		x.announce(q.Topic)
		return 0
	})
}

// DeleteCount implements [backend.CountDownLatchStore].
func (x counts) DeleteCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return counted(ctx, x, q, func(count, once *record) bool {
		switch {
		case once != nil:
			return once.took == 1
		case count == nil:
			x.remember(q, 0)
			return false
		}
		x.remember(q, 1)
		x.store.remove(count)
		x.announce(q.Topic)
		return true
	})
}

// AddCount implements [backend.CountingSemaphoreStore].
func (x counts) AddCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x, q, func(count, once *record) int64 {
		if once != nil {
			return count.counted()
		}
		x.remember(q, 1)
		there := x.add(count, q.Topic.Name, q.N)
		if there > 0 && q.N > 0 {
			x.announce(q.Topic)
		}
		return there
	})
}

// TakeCount implements [backend.CountingSemaphoreStore].
func (x counts) TakeCount(ctx context.Context, q backend.CountRequest) (backend.TakeReply, error) {
	return counted(ctx, x, q, func(count, once *record) backend.TakeReply {
		if once != nil {
			return backend.TakeReply{Granted: once.took == 1, Available: count.counted()}
		}
		k, e := x.store.enrolments, entry{x.client, q.Entry}
		reply := backend.TakeReply{Available: count.counted() - k.kept(q.Topic, e)}
		if reply.Granted = reply.Available >= q.N; reply.Granted {
			x.remember(q, 1)
			x.add(count, q.Topic.Name, -q.N)
			reply.Available -= q.N
			reply.QueueReply, _ = k.served(q.Topic, e, q.Stays)
			k.tellTakers(q.Topic, reply.Available, e)
			return reply
		}
		w, free := enrolled{entry: e, topic: q.Topic, wants: max(q.Least, 1)}, reply.Available
		reply.QueueReply = k.refused(w)
		if reply.Enrolled && w.wants <= free { // it asks again at once, for less
			k.keep(q.Topic, e)
			free -= w.wants
		}
		k.tellTakers(q.Topic, free, e)
		return reply
	})
}

// CancelTake implements [backend.CountingSemaphoreStore].
func (x counts) CancelTake(ctx context.Context, q backend.CountRequest) error {
	_, err := counted(ctx, x, q, func(count, once *record) struct{} {
		took := once != nil && once.took == 1
		x.remember(q, 0)
		if took && count != nil && x.add(count, q.Topic.Name, q.N) > 0 {
			x.announce(q.Topic)
		}
		return struct{}{}
	})
	return err
}

// DrainCount implements [backend.CountingSemaphoreStore].
func (x counts) DrainCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x, q, func(count, once *record) int64 {
		if once != nil {
			return once.took
		}
		took := count.counted()
		x.remember(q, took)
		if count != nil {
			*count.count = 0
		}
		return took
	})
}

// counted is what a count is; zero if there is none, or the name is another kind's.
func (r *record) counted() int64 {
	if r == nil || r.count == nil {
		return 0
	}
	return *r.count
}

// permits has the operations of permits with a lease.
type permits struct{ counts }

// permit is one that is out.
type permit struct{ ends time.Time }

// out finds the permits of name that are out; nil if none is.
func (x permits) out(name string) map[string]*permit {
	if r := x.store.find(outName(name)); r != nil {
		return r.out
	}
	return nil
}

// reclaim puts back the permits whose leases have ended. It reports whether there were any, and
// returns the count then.
func (x permits) reclaim(name string) (there int64, ended bool) {
	now := time.Now()
	out := x.out(name)
	for id, p := range out {
		if !now.Before(p.ends) {
			there, ended = x.putBack(name, id, out), true
		}
	}
	return there, ended
}

func (x permits) putBack(name, id string, out map[string]*permit) (there int64) {
	delete(out, id)
	if len(out) == 0 {
		delete(x.store.records, outName(name))
	}
	return x.add(x.store.find(name), name, 1)
}

// Acquire implements [backend.SemaphoreStore].
func (x permits) Acquire(ctx context.Context, q backend.PermitRequest) (backend.PermitReply, error) {
	return locked(ctx, x.client, func(*Store) (backend.PermitReply, error) { return x.acquire(q) })
}

func (x permits) acquire(q backend.PermitRequest) (reply backend.PermitReply, err error) {
	if _, err := x.find(q.Name); err != nil {
		return reply, err
	}
	_, ended := x.reclaim(q.Name)
	count := x.store.find(q.Name)
	out := x.out(q.Name)
	k, e, t := x.store.enrolments, entry{x.client, q.Entry}, backend.Topic{Kind: backend.KindSemaphore, Name: q.Name}
	reply.Available = count.counted() - k.kept(t, e)
	switch {
	case out[q.Owner] != nil:
		reply.Granted = true
	case reply.Available > 0:
		if out == nil {
			name := outName(q.Name)
			out = make(map[string]*permit)
			x.store.records[name] = &record{name: name, foreign: true, out: out, index: -1}
		}
		out[q.Owner] = &permit{ends: time.Now().Add(q.Lease)}
		x.add(count, q.Name, -1)
		reply.Granted, reply.Available = true, reply.Available-1
		reply.QueueReply, _ = k.served(t, e, q.Stays)
	default:
		reply.QueueReply = k.refused(enrolled{entry: e, topic: t, wants: 1})
		reply.Remaining = -1
		until := func(ends time.Time) {
			if left := remaining(ends); reply.Remaining < 0 || left < reply.Remaining {
				reply.Remaining = left
			}
		}
		for _, p := range out {
			until(p.ends)
		}
		for _, w := range k.told(t, e) {
			until(w.until)
		}
	}
	if k.tellTakers(t, reply.Available, e); ended && x.store.find(q.Name).counted() > 0 {
		x.announceFree(q.Name)
	}
	return reply, nil
}

func (x permits) announceFree(name string) {
	x.announce(backend.Topic{Kind: backend.KindSemaphore, Name: name})
}

// Release implements [backend.SemaphoreStore].
func (x permits) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return locked(ctx, x.client, func(*Store) (backend.ReleaseReply, error) {
		out := x.out(q.Name)
		p := out[q.Owner]
		if p == nil {
			return backend.ReleaseReply{}, nil
		}
		if _, err := x.find(q.Name); err != nil {
			return backend.ReleaseReply{}, err
		}
		if x.putBack(q.Name, q.Owner, out) > 0 {
			x.announceFree(q.Name)
		}
		return backend.ReleaseReply{Held: time.Now().Before(p.ends)}, nil
	})
}

// Renew implements [backend.SemaphoreStore].
func (x permits) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, func(q backend.RenewRequest) bool {
		now := time.Now()
		p := x.out(q.Name)[q.Owner]
		if p == nil || !now.Before(p.ends) {
			return false
		}
		if ends := now.Add(q.Lease); ends.After(p.ends) {
			p.ends = ends
		}
		return true
	})
}
