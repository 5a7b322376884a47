package property

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// kinds is a sequence of operations of some kinds on one name, at the port. Each
// answer, of each store, is compared with that of the contract.
type kinds struct {
	worlds []*opened
	c      *contract
	name   string
	sent   []resend
}

// resend is a request that was sent, to be sent again.
type resend struct {
	what string
	q    backend.CountRequest
	want func(backend.CountRequest) reply
	op   func(anykind.Store, backend.CountRequest) reply
}

// Owners of each kind are others: an owner's id is never used for a second lease.
var (
	lockOwners   = []string{"c1:1", "c1:2", "uuid:77", "Ω \x00\n:9"}
	readOwners   = []string{"r1:1", "r1:2", "uuid:78", "Ω \x00\n:r"}
	writeOwners  = []string{"w1:1", "w2:1", "uuid:79"}
	permitOwners = []string{
		"00000000000000000000000000000001", "0a0d000000000000000000000000ffff",
		"ffffffffffffffffffffffffffffffff", "7b7d2a3a00000000000000000000abcd",
	}
	claimants = []string{"c1", "c2"}
)

const (
	long     = 10 * time.Minute
	claimFor = 15 * time.Minute
	// brief is a lease that is waited out.
	brief = 4 * time.Millisecond
)

func longLease(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{long, 2 * long, 4 * long}).Draw(t, "lease")
}

func oneOf[T any](t *rapid.T, label string, of []T) T { return rapid.SampledFrom(of).Draw(t, label) }

// each asks every store and the contract.
func (k *kinds) each(t *rapid.T, what string, want reply, op func(w *opened, x anykind.Store) reply) {
	t.Helper()
	k.eachWith(t, what, false, want, op)
}

// eachWith: a session that refuses from what it believes to know may lag, and is asked again.
func (k *kinds) eachWith(t *rapid.T, what string, cached bool, want reply, op func(w *opened, x anykind.Store) reply) {
	t.Helper()
	i := which.Draw(t, "session")
	t.Logf("%s: %v", what, want)
	for _, w := range k.worlds {
		var got reply
		w.again(func() bool {
			got = op(w, w.port[i])
			return !cached || got.yes || got.agrees(want)
		})
		harness.FatalIf(t, !got.agrees(want), "%s:\nthe contract: %v\n%s: %v", what, want, w.label, got)
	}
}

func ofAcquire(r anykind.AcquireReply, err error) reply {
	return reply{
		err:     sentence(err),
		yes:     r.Granted,
		claimed: r.Claimed,
		absent:  r.Absent,
		token:   r.Token > 0,
		n:       r.Available,
		left:    r.Remaining,
	}
}

// asked is the same acquisition at each store; and of a brief lease it waits for the end.
func (k *kinds) asked(t *rapid.T, q anykind.AcquireRequest, does func(anykind.AcquireRequest) reply) {
	t.Helper()
	what := fmt.Sprintf("Acquire %+v", q)
	want := does(q)
	k.eachWith(t, what, q.Unasked, want, func(w *opened, x anykind.Store) reply {
		q := q
		q.Name = w.key(k.name)
		return ofAcquire(x.Acquire(context.Background(), q))
	})
	if q.Lease != brief || !want.yes {
		return
	}
	for _, w := range k.worlds {
		await(t, w.label+": the lease is over", func() bool {
			out := make([]backend.RenewResult, 1)
			renewal := anykind.RenewRequest{Kind: q.Kind, Name: w.key(k.name), Owner: q.Owner}
			w.port[0].Renew(context.Background(), []anykind.RenewRequest{renewal}, out)
			if out[0].Err != nil {
				t.Fatalf("%s: Renew: %v", w.label, out[0].Err)
			}
			return !out[0].Held
		})
	}
	k.c.over(q.Kind, q.Owner)
}

// lease is a long one or, where the owner would get it anew, perhaps one to be waited out.
func lease(t *rapid.T, anew bool) time.Duration {
	if anew && rapid.IntRange(0, 3).Draw(t, "brief") == 0 {
		return brief
	}
	return longLease(t)
}

func (k *kinds) released(t *rapid.T, q anykind.ReleaseRequest, want reply) {
	t.Helper()
	k.each(t, fmt.Sprintf("Release %+v", q), want, func(w *opened, x anykind.Store) reply {
		q := q
		q.Name = w.key(k.name)
		r, err := x.Release(context.Background(), q)
		return reply{err: sentence(err), yes: r.Held}
	})
}

func (k *kinds) reentered(t *rapid.T, q anykind.HoldsRequest, want reply) {
	t.Helper()
	k.each(t, fmt.Sprintf("Reenter %+v", q), want, func(w *opened, x anykind.Store) reply {
		q := q
		q.Name = w.key(k.name)
		r, err := x.SetHolds(context.Background(), q)
		return reply{err: sentence(err), yes: r.Held, token: r.Token > 0}
	})
}

func (k *kinds) forced(t *rapid.T, kind backend.Kind, want reply) {
	t.Helper()
	k.each(t, fmt.Sprintf("ForceRelease of kind %d", kind), want, func(w *opened, x anykind.Store) reply {
		yes, err := x.ForceRelease(context.Background(), backend.Topic{Kind: kind, Name: w.key(k.name)})
		return reply{err: sentence(err), yes: yes}
	})
}

// renewals sends a batch of requests of the given kinds.
func (k *kinds) renewals(of ...backend.Kind) func(*rapid.T) {
	return func(t *rapid.T) {
		var in []anykind.RenewRequest
		want := ""
		for range rapid.IntRange(1, 4).Draw(t, "batch") {
			q := anykind.RenewRequest{Kind: rapid.SampledFrom(of).Draw(t, "kind")}
			q.Owner = oneOf(t, "owner", map[backend.Kind][]string{
				backend.KindLock: lockOwners, backend.KindRead: readOwners, backend.KindWrite: writeOwners,
				backend.KindSemaphore: permitOwners,
			}[q.Kind])
			q.Lease = rapid.SampledFrom([]time.Duration{0, long, 2 * long, 4 * long, 8 * long}).Draw(t, "lease")
			in = append(in, q)
			want += fmt.Sprintf("ok %v; ", k.c.renew(q))
		}
		k.each(t, fmt.Sprintf("Renew %+v", in), reply{owner: want}, func(w *opened, x anykind.Store) (r reply) {
			there, out := slices.Clone(in), make([]backend.RenewResult, len(in))
			for i := range there {
				there[i].Name = w.key(k.name)
			}
			x.Renew(context.Background(), there, out)
			for _, o := range out {
				r.owner += fmt.Sprintf("%s %v; ", sentence(o.Err), o.Held)
			}
			return r
		})
	}
}

type actions = map[string]func(*rapid.T)

func (k *kinds) locks() actions {
	c := k.c
	acquire := func(t *rapid.T) {
		q := anykind.AcquireRequest{Owner: oneOf(t, "owner", lockOwners), Fenced: rapid.Bool().Draw(t, "fenced")}
		q.Lease = lease(t, c.free())
		q.Unasked = !c.holds(q.Owner) && rapid.Bool().Draw(t, "cached")
		k.asked(t, q, c.acquire)
	}
	return actions{
		"acquire": acquire, "acquire too": acquire,
		"reenter": func(t *rapid.T) {
			q := anykind.HoldsRequest{Owner: oneOf(t, "owner", lockOwners), Holds: rapid.IntRange(2, 4).Draw(t, "holds"),
				Lease: longLease(t), Fenced: rapid.Bool().Draw(t, "fenced")}
			k.reentered(t, q, c.reenter(q))
		},
		"release": func(t *rapid.T) {
			q := anykind.ReleaseRequest{Owner: oneOf(t, "owner", lockOwners), Keep: oneOf(t, "keep", []int{0, 0, 1, 2})}
			k.released(t, q, c.release(q))
		},
		"force": func(t *rapid.T) { k.forced(t, backend.KindLock, c.force()) },
		"renew": k.renewals(backend.KindLock),
	}
}

func (k *kinds) fair() actions {
	c := k.c
	ask := func(t *rapid.T) {
		q := anykind.AcquireRequest{Kind: backend.KindFair, Owner: oneOf(t, "owner", lockOwners), Lease: longLease(t)}
		q.Fenced = rapid.Bool().Draw(t, "fenced")
		if slices.Contains(c.line, q.Owner) || rapid.Bool().Draw(t, "waits") {
			q.Wait = time.Hour // the same each time
		}
		k.asked(t, q, c.ask)
	}
	return actions{
		"ask": ask, "ask too": ask, "ask three": ask,
		"release fair": func(t *rapid.T) {
			q := anykind.ReleaseRequest{Kind: backend.KindFair, Owner: oneOf(t, "owner", lockOwners)}
			q.Keep = oneOf(t, "keep", []int{0, 0, 2})
			if c.lock != nil && rapid.Bool().Draw(t, "by its holder") {
				q.Owner = c.lock.owner
			}
			k.released(t, q, c.release(q))
		},
		"leave": func(t *rapid.T) {
			q := backend.LeaveRequest{Owner: oneOf(t, "owner", lockOwners), Wait: time.Hour}
			k.each(t, fmt.Sprintf("Leave %+v", q), c.leave(q), func(w *opened, x anykind.Store) reply {
				q := q
				q.Name = w.key(k.name)
				r, err := x.Capabilities().Fair.Leave(context.Background(), q)
				return reply{err: sentence(err), yes: r.Held, queued: r.Queued}
			})
		},
	}
}

func (k *kinds) sides() actions {
	c := k.c
	read := func(t *rapid.T) {
		q := anykind.AcquireRequest{Kind: backend.KindRead, Owner: oneOf(t, "owner", readOwners)}
		switch rapid.IntRange(0, 3).Draw(t, "under") {
		case 0:
			q.Under, q.UnderKind = oneOf(t, "reader", readOwners), backend.KindRead
		case 1:
			q.Under, q.UnderKind = oneOf(t, "writer", writeOwners), backend.KindWrite
			if c.rw != nil && c.rw.writer != "" {
				q.Under = c.rw.writer
			}
		}
		q.Lease = lease(t, !c.reads(q.Owner))
		q.Unasked = q.Under == "" && !c.reads(q.Owner) && rapid.Bool().Draw(t, "cached")
		k.asked(t, q, c.read)
	}
	write := func(t *rapid.T) {
		q := anykind.AcquireRequest{Kind: backend.KindWrite, Owner: oneOf(t, "owner", writeOwners)}
		q.Claimant = oneOf(t, "claimant", claimants)
		q.Lease = lease(t, c.free())
		if rapid.IntRange(0, 2).Draw(t, "claims") == 0 {
			q.Claim = claimFor
		}
		k.asked(t, q, c.write)
	}
	release := func(t *rapid.T) {
		q := anykind.ReleaseRequest{Kind: backend.KindRead, Owner: oneOf(t, "owner", readOwners)}
		if rapid.Bool().Draw(t, "writer") {
			q = anykind.ReleaseRequest{Kind: backend.KindWrite, Owner: oneOf(t, "owner", writeOwners)}
			q.Keep = oneOf(t, "keep", []int{0, 0, 1, 2})
		}
		k.released(t, q, c.releaseSide(q))
	}
	return actions{
		"read": read, "read too": read, "write": write, "release side": release, "release side too": release,
		"rewrite": func(t *rapid.T) {
			q := anykind.HoldsRequest{Kind: backend.KindWrite, Owner: oneOf(t, "owner", writeOwners)}
			q.Holds, q.Lease = rapid.IntRange(2, 4).Draw(t, "holds"), longLease(t)
			if rapid.IntRange(0, 9).Draw(t, "of read") == 0 {
				q.Kind = backend.KindRead
			}
			k.reentered(t, q, c.rewrite(q))
		},
		"withdraw": func(t *rapid.T) {
			claimant := oneOf(t, "claimant", claimants)
			k.each(t, fmt.Sprintf("Withdraw %q", claimant), c.withdraw(claimant), func(w *opened, x anykind.Store) reply {
				err := x.Capabilities().ReadWrite.Withdraw(context.Background(), w.key(k.name), claimant)
				return reply{err: sentence(err)}
			})
		},
		"force rw": func(t *rapid.T) { k.forced(t, backend.KindWrite, c.forceRW()) },
		"renew rw": k.renewals(backend.KindRead, backend.KindWrite),
	}
}

func count(kind backend.Kind, n int64) backend.CountRequest {
	return backend.CountRequest{Topic: backend.Topic{Kind: kind}, ID: fresh(), N: n}
}

// counted sends a request that counts once, and notes it for a repeat.
func (k *kinds) counted(t *rapid.T, r resend) {
	t.Helper()
	k.sent = append(k.sent, r)
	k.send(t, r)
}

func (k *kinds) send(t *rapid.T, r resend) {
	t.Helper()
	k.each(t, fmt.Sprintf("%s %+v", r.what, r.q), r.want(r.q), func(w *opened, x anykind.Store) reply {
		q := r.q
		q.Topic.Name = w.key(k.name)
		return r.op(x, q)
	})
}

func (k *kinds) repeat(t *rapid.T) {
	if len(k.sent) > 0 {
		r := rapid.SampledFrom(k.sent).Draw(t, "request")
		r.q.Again = true
		k.send(t, r)
	}
}

func (k *kinds) read(t *rapid.T, kind backend.Kind) {
	k.each(t, fmt.Sprintf("Count of kind %d", kind), k.c.readCount(kind), func(w *opened, x anykind.Store) reply {
		n, err := x.Count(context.Background(), backend.Topic{Kind: kind, Name: w.key(k.name)})
		return reply{err: sentence(err), n: n}
	})
}

// semaphores are those of either kind: what they have in common.
func (k *kinds) semaphores(kind backend.Kind) actions {
	add := func(t *rapid.T) {
		n := rapid.SampledFrom([]int64{1, 1, 2, 3, -1, -4, backend.MaxCount}).Draw(t, "permits")
		if n == backend.MaxCount && k.c.there() > 0 {
			n = 1
		}
		k.counted(t, resend{"AddCount", count(kind, n), k.c.addCount, func(x anykind.Store, q backend.CountRequest) reply {
			n, err := x.AddCount(context.Background(), q)
			return reply{err: sentence(err), n: n}
		}})
	}
	return actions{
		fmt.Sprint("set ", kind): func(t *rapid.T) {
			n := rapid.Int64Range(0, 4).Draw(t, "permits")
			k.counted(t, resend{"SetCount", count(kind, n), k.c.setCount, setCount})
		},
		fmt.Sprint("add ", kind): add, fmt.Sprint("count ", kind): func(t *rapid.T) { k.read(t, kind) },
		fmt.Sprint("repeat ", kind): k.repeat,
	}
}

func setCount(x anykind.Store, q backend.CountRequest) reply {
	yes, err := x.SetCount(context.Background(), q)
	return reply{err: sentence(err), yes: yes}
}

func takeCount(x anykind.Store, q backend.CountRequest) reply {
	r, err := x.Capabilities().CountingSemaphores.TakeCount(context.Background(), q)
	return reply{err: sentence(err), yes: r.Granted, n: r.Available}
}

func (k *kinds) countingSemaphore() actions {
	all := k.semaphores(backend.KindCountingSemaphore)
	take := func(t *rapid.T) {
		n := rapid.Int64Range(1, 4).Draw(t, "permits")
		k.counted(t, resend{"TakeCount", count(backend.KindCountingSemaphore, n), k.c.take, takeCount})
	}
	all["take"], all["take too"] = take, take
	all["cancel"] = func(t *rapid.T) {
		var takes []resend
		for _, r := range k.sent {
			if r.what == "TakeCount" {
				takes = append(takes, r)
			}
		}
		r := resend{q: count(backend.KindCountingSemaphore, 2)} // one that never arrived
		if len(takes) > 0 && rapid.IntRange(0, 4).Draw(t, "of one that was sent") > 0 {
			r = rapid.SampledFrom(takes).Draw(t, "take")
		} else {
			late := r
			late.what, late.want, late.op = "TakeCount", k.c.take, takeCount
			k.sent = append(k.sent, late)
		}
		r.what, r.want = "CancelTake", k.c.cancel
		r.op = func(x anykind.Store, q backend.CountRequest) reply {
			return reply{err: sentence(x.Capabilities().CountingSemaphores.CancelTake(context.Background(), q))}
		}
		k.send(t, r)
	}
	all["drain"] = func(t *rapid.T) {
		q := count(backend.KindCountingSemaphore, 0)
		k.counted(t, resend{"DrainCount", q, k.c.drain, func(x anykind.Store, q backend.CountRequest) reply {
			n, err := x.Capabilities().CountingSemaphores.DrainCount(context.Background(), q)
			return reply{err: sentence(err), n: n}
		}})
	}
	return all
}

func (k *kinds) latch() actions {
	down := func(t *rapid.T) {
		q := count(backend.KindCountDownLatch, 1)
		k.counted(t, resend{"CountDown", q, k.c.countDown, func(x anykind.Store, q backend.CountRequest) reply {
			n, err := x.Capabilities().CountDownLatches.CountDown(context.Background(), q)
			return reply{err: sentence(err), n: n}
		}})
	}
	return actions{
		"latch": func(t *rapid.T) {
			n := rapid.Int64Range(1, 4).Draw(t, "count")
			k.counted(t, resend{"SetCount", count(backend.KindCountDownLatch, n), k.c.setCount, setCount})
		},
		"down": down, "down too": down, "repeat": k.repeat,
		"unlatch": func(t *rapid.T) {
			q := count(backend.KindCountDownLatch, 0)
			k.counted(t, resend{"DeleteCount", q, k.c.deleteCount, func(x anykind.Store, q backend.CountRequest) reply {
				yes, err := x.Capabilities().CountDownLatches.DeleteCount(context.Background(), q)
				return reply{err: sentence(err), yes: yes}
			}})
		},
	}
}

func (k *kinds) semaphore() actions {
	all := k.semaphores(backend.KindSemaphore)
	acquire := func(t *rapid.T) {
		q := anykind.AcquireRequest{Kind: backend.KindSemaphore, Owner: oneOf(t, "id", permitOwners)}
		p := k.c.out[q.Owner]
		q.Lease = lease(t, p == nil || p.ended)
		k.asked(t, q, k.c.permit)
	}
	release := func(t *rapid.T) {
		q := anykind.ReleaseRequest{Kind: backend.KindSemaphore, Owner: oneOf(t, "id", permitOwners)}
		k.released(t, q, k.c.returned(q))
	}
	all["permit"], all["permit too"], all["permit three"] = acquire, acquire, acquire
	all["return"], all["return too"] = release, release
	all["renew permits"] = k.renewals(backend.KindSemaphore)
	return all
}

func (k *kinds) operator() actions {
	return actions{
		"delete": func(t *rapid.T) {
			if rapid.IntRange(0, 2).Draw(t, "really") == 0 {
				t.Log("deleted by an operator")
				k.c.remove()
				for _, w := range k.worlds {
					w.store.remove(w.key(k.name))
				}
			}
		},
		"occupy": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "really") == 0 {
				t.Log("occupied by a list")
				k.c.occupy()
				for _, w := range k.worlds {
					w.store.occupy(w.key(k.name), "list")
				}
			}
		},
	}
}

// look compares all that can be read, and what was told.
func (k *kinds) look(t *rapid.T) {
	t.Log("and all is read")
	for _, kind := range []backend.Kind{backend.KindLock, backend.KindWrite} {
		want := k.c.inspect
		if kind == backend.KindWrite {
			want = k.c.inspectRW
		}
		k.each(t, fmt.Sprintf("Inspect of kind %d", kind), want(), func(w *opened, x anykind.Store) reply {
			r, err := x.Inspect(context.Background(), backend.Topic{Kind: kind, Name: w.key(k.name)})
			return reply{
				err:     sentence(err),
				yes:     r.Held,
				owner:   r.Owner,
				holds:   r.Holds,
				readers: r.Readers,
				left:    r.Remaining,
				reading: r.Kind == backend.KindRead,
			}
		})
	}
	k.read(t, backend.KindCountingSemaphore)
	for _, w := range k.worlds {
		until := time.Now().Add(soon)
		for heard := w.told(k.name); !maps.Equal(heard, k.c.told); heard = w.told(k.name) {
			harness.FatalIf(t, time.Now().After(until) || tooMany(heard, k.c.told),
				"%s: told, by topic, %v; the contract: %v", w.label, heard, k.c.told)
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// tooMany tells whether something was heard that did not happen: no need to wait then.
func tooMany(heard, told map[backend.Topic]int) bool {
	for x, n := range heard {
		if n > told[x] {
			return true
		}
	}
	return false
}

// watch has the first session of each store told of all about the name.
func (k *kinds) watch(t *rapid.T) (unwatch func()) {
	topics := []backend.Topic{{Kind: backend.KindLock}, {Kind: backend.KindCountDownLatch},
		{Kind: backend.KindCountingSemaphore}, {Kind: backend.KindSemaphore}, {Kind: backend.KindWrite}}
	for _, o := range lockOwners {
		topics = append(topics, backend.Topic{Kind: backend.KindFair, Owner: o})
	}
	on := func(f func(w *opened, x backend.Topic)) {
		for _, w := range k.worlds {
			for _, x := range topics {
				x.Name = w.key(k.name)
				f(w, x)
			}
		}
	}
	on(func(w *opened, x backend.Topic) { w.port[0].Subscribe(x) })
	for _, w := range k.worlds {
		await(t, w.label+": all is watched", func() bool { return len(w.watched(k.name)) == len(topics) })
	}
	return func() { on(func(w *opened, x backend.Topic) { w.port[0].Unsubscribe(x) }) }
}

func TestEveryKindAnswersAtThePortAsTheContractSays(t *testing.T) {
	one := func(of ...func(*kinds) actions) func(*kinds) actions {
		return func(k *kinds) actions {
			all := actions{}
			for _, f := range of {
				maps.Copy(all, f(k))
			}
			return all
		}
	}
	operator := (*kinds).operator
	names := []string{"n", "{tenant}:ü\n"}
	for _, tt := range []struct {
		name string
		of   func(*kinds) actions
	}{
		{"lock", one((*kinds).locks, operator)},
		{"fair", one((*kinds).locks, (*kinds).fair)},
		{"rw", one((*kinds).sides, operator)},
		{"counting semaphore", one((*kinds).countingSemaphore, operator)},
		{"latch", one((*kinds).latch, operator)},
		{"semaphore", one((*kinds).semaphore, operator)},
		{"mixed", one((*kinds).locks, (*kinds).fair, (*kinds).sides, (*kinds).countingSemaphore,
			(*kinds).latch, (*kinds).semaphore, operator)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			worlds := openPorts(t)
			rapid.Check(t, func(t *rapid.T) {
				k := &kinds{worlds: worlds, c: newContract(), name: fresh() + oneOf(t, "name", names)}
				defer k.watch(t)()
				all := tt.of(k)
				all[""] = k.look
				repeat(t, all)
			})
		})
	}
}
