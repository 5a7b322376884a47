package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// A count is a record under its name, as it is a key on Redis; to a lock of that name the record is foreign data. A
// second record has the permits in use. Each remembered request has a further record, which expires.

func outName(name string) string { return "{" + name + "}:timeout" }

func onceName(q backend.CountRequest) string {
	return "mortise:1:once:{" + q.Topic.Name + "}:" + q.ID
}

// counts implements [backend.CountDownLatchStore], and has operations that semaphores share.
type counts struct{ *client }

// find returns the count of name; nil if there is none. It returns an error if name has other data.
func (x counts) find(name string) (*record, error) {
	r := x.store.find(name)
	if r != nil && r.count == nil {
		return nil, wrongKind(r)
	}
	return r, nil
}

// add adds n to the count r and returns the sum. If r is nil, it makes the count.
func (x counts) add(r *record, name string, n int64) int64 {
	if r == nil {
		r = &record{name: name, foreign: true, count: new(int64), index: -1}
		x.store.records[name] = r
	}
	*r.count += n
	return *r.count
}

// announce announces a change of a count to the sessions that watch t. The entries of a semaphore's queue come first,
// and both kinds of semaphores are told: they share a channel.
func (x counts) announce(t backend.Topic) {
	if t.Kind == backend.KindCountDownLatch {
		x.store.watchers.tell(released, t)
		return
	}
	k := x.store.enrolments
	x.announcePermits(t, k.tellTakers(t, x.store.find(t.Name).counted()-k.kept(t, entry{}), entry{}))
}

// announcePermits tells the sessions that watch a semaphore of either kind. Served says that entries were told to ask.
func (x counts) announcePermits(t backend.Topic, served bool) {
	for _, kind := range []backend.Kind{backend.KindCountingSemaphore, backend.KindSemaphore} {
		x.store.enrolments.announce(backend.Topic{Kind: kind, Name: t.Name}, served)
	}
}

// remember stores the result of q, so that a repeated q is not executed again.
func (x counts) remember(q backend.CountRequest, took int64) {
	name := onceName(q)
	if old := x.store.find(name); old != nil {
		x.store.remove(old)
	}
	x.store.put(&record{name: name, foreign: true, took: took}, backend.Remembered)
}

// counted runs an operation on a count under the store's mutex. The operation gets the record of the count, and the
// record of an earlier execution of the request; each is nil if there is none.
func counted[R any](ctx context.Context, x counts, q backend.CountRequest, run func(count, once *record) R) (R, error) {
	return locked(ctx, x.client, func(s *Store) (reply R, err error) {
		count, err := x.find(q.Topic.Name)
		if q.Topic.Kind == backend.KindSemaphore && err == nil {
			err = x.checkOut(q.Topic.Name)
		}
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
			if there, ended := (permits{semaphores{x}}).reclaim(t.Name); ended {
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
		for _, w := range k.told(q.Topic, e) {
			reply.Remaining = max(reply.Remaining, remaining(w.until))
		}
		w, free := enrolled{entry: e, topic: q.Topic, wants: max(q.Least, 1)}, reply.Available
		reply.QueueReply = k.refused(w)
		if reply.Enrolled && w.wants <= free { // the session asks again at once, for fewer permits
			k.keep(q.Topic, e)
			reply.First = false
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

// DeleteCount implements [backend.CountingSemaphoreStore].
func (x semaphores) DeleteCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	q.Topic.Kind = backend.KindSemaphore // the permits in use are removed, too
	return counted(ctx, x.counts, q, func(count, once *record) bool {
		if once != nil {
			return once.took == 1
		}
		delete(x.store.records, outName(q.Topic.Name))
		if count == nil {
			x.remember(q, 0)
			return false
		}
		x.remember(q, 1)
		x.store.remove(count)
		return true
	})
}

// counted returns the count of r; zero if r is nil, or has no count.
func (r *record) counted() int64 {
	if r == nil || r.count == nil {
		return 0
	}
	return *r.count
}

// semaphores implements [backend.CountingSemaphoreStore]. Its DeleteCount, unlike a latch's, announces nothing.
type semaphores struct{ counts }

// permits implements [backend.SemaphoreStore]: permits with a lease each.
type permits struct{ semaphores }

// permit is a permit in use.
type permit struct{ ends time.Time }

// out returns the permits of name in use, by id; nil if there are none.
func (x permits) out(name string) map[string]*permit {
	if r := x.store.find(outName(name)); r != nil {
		return r.out
	}
	return nil
}

// checkOut returns an error if other data than permits in use have the name of the permits in use.
func (x counts) checkOut(name string) error {
	if r := x.store.find(outName(name)); r != nil && r.out == nil {
		return wrongKind(r)
	}
	return nil
}

// reclaim adds the expired permits to the count. It reports whether there were any, and then returns the count.
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
	if err := x.checkOut(q.Name); err != nil {
		return reply, err
	}
	_, more := x.reclaim(q.Name)
	ids, out := slices.Collect(backend.PermitIDs(q.Owner)), x.out(q.Name)
	again := slices.ContainsFunc(ids, func(id string) bool { return out[id] != nil })
	if count := x.store.find(q.Name); q.Limit > 0 && !again && (count == nil || q.Declare) {
		more = x.resize(q.Name, q.Limit) || more
	}
	count := x.store.find(q.Name)
	k, e, t := x.store.enrolments, entry{x.client, q.Entry}, backend.Topic{Kind: backend.KindSemaphore, Name: q.Name}
	reply.Available = count.counted() - k.kept(t, e)
	free, wants := reply.Available, int64(len(ids))
	switch {
	case again:
		reply.Granted = true
	case free >= wants:
		x.take(q, ids, out)
		x.add(count, q.Name, -wants)
		free -= wants
		reply.Granted, reply.Available = true, free
		reply.QueueReply, _ = k.served(t, e, q.Stays)
	default:
		w := enrolled{entry: e, topic: t, wants: max(q.Least, 1)}
		reply.QueueReply, reply.Remaining = k.refused(w), x.remaining(t, e, out)
		if reply.Enrolled && w.wants <= free { // the session asks again at once, for fewer permits
			k.keep(t, e)
			reply.First = false
			free -= w.wants
		}
	}
	if served := k.tellTakers(t, free, e); more && x.store.find(q.Name).counted() > 0 {
		x.announcePermits(t, served)
	}
	return reply, nil
}

// take notes that the permits of q are in use.
func (x permits) take(q backend.PermitRequest, ids []string, out map[string]*permit) {
	if out == nil {
		name := outName(q.Name)
		out = make(map[string]*permit)
		x.store.records[name] = &record{name: name, foreign: true, out: out, index: -1}
	}
	ends := time.Now().Add(q.Lease) // of all: they end together
	for _, id := range ids {
		out[id] = &permit{ends: ends}
	}
}

// remaining returns the time until a permit may become free without a release: the first end of a permit's lease, or of
// a reservation for another entry. Negative: never.
func (x permits) remaining(t backend.Topic, e entry, out map[string]*permit) time.Duration {
	first := time.Duration(-1)
	until := func(ends time.Time) {
		if left := remaining(ends); first < 0 || left < first {
			first = left
		}
	}
	for _, p := range out {
		until(p.ends)
	}
	for _, w := range x.store.enrolments.told(t, e) {
		until(w.until)
	}
	return first
}

// resize sets the number of permits, free and in use together, to limit. It reports whether the free permits grew.
func (x permits) resize(name string, limit int64) bool {
	count := x.store.find(name)
	more := limit - int64(len(x.out(name))) - count.counted()
	x.add(count, name, more)
	return more > 0
}

// SetLimit implements [backend.SemaphoreStore].
func (x permits) SetLimit(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x.counts, q, func(_, once *record) int64 {
		if once == nil {
			x.remember(q, 1)
			_, ended := x.reclaim(q.Topic.Name)
			if more := x.resize(q.Topic.Name, q.N); (more || ended) && x.store.find(q.Topic.Name).counted() > 0 {
				x.announce(q.Topic)
			}
		}
		return x.store.find(q.Topic.Name).counted()
	})
}

// InspectPermits implements [backend.SemaphoreStore].
func (x permits) InspectPermits(ctx context.Context, name string, most int) (backend.PermitsRecord, error) {
	q := backend.CountRequest{Topic: backend.Topic{Kind: backend.KindSemaphore, Name: name}}
	return counted(ctx, x.counts, q, func(count, _ *record) backend.PermitsRecord {
		r, now := backend.PermitsRecord{Free: count.counted()}, time.Now()
		for id, p := range x.out(name) {
			if !now.Before(p.ends) {
				r.Free++
				continue
			}
			r.Out++
			r.List = append(r.List, backend.PermitRecord{ID: id, Remaining: p.ends.Sub(now)})
		}
		slices.SortFunc(r.List, func(a, b backend.PermitRecord) int {
			return cmp.Or(cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(a.ID, b.ID))
		})
		r.List = r.List[:min(len(r.List), most)]
		return r
	})
}

func (x permits) announceFree(name string) {
	x.announce(backend.Topic{Kind: backend.KindSemaphore, Name: name})
}

// Release implements [backend.SemaphoreStore].
func (x permits) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return locked(ctx, x.client, func(*Store) (reply backend.ReleaseReply, err error) {
		if err := x.checkOut(q.Name); err != nil {
			return reply, err
		}
		out, there, now := x.out(q.Name), int64(0), time.Now()
		reply.Held = true
		for id := range backend.PermitIDs(q.Owner) {
			p := out[id]
			reply.Held = reply.Held && p != nil && now.Before(p.ends)
			if p == nil {
				continue
			}
			if _, err := x.find(q.Name); err != nil {
				return backend.ReleaseReply{}, err
			}
			there = x.putBack(q.Name, id, out)
		}
		if there > 0 {
			x.announceFree(q.Name)
		}
		return reply, nil
	})
}

// Renew implements [backend.SemaphoreStore].
func (x permits) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, func(q backend.RenewRequest) bool {
		now := time.Now()
		ids, out := slices.Collect(backend.PermitIDs(q.Owner)), x.out(q.Name)
		if slices.ContainsFunc(ids, func(id string) bool { return out[id] == nil || !now.Before(out[id].ends) }) {
			return false
		}
		for _, id := range ids {
			if p, ends := out[id], now.Add(q.Lease); ends.After(p.ends) {
				p.ends = ends
			}
		}
		return true
	})
}
