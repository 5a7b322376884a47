package redisproto_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/wire"
	"github.com/mortise-go/mortise/scripts"
)

// queueOf and roundOf are the keys of a lock's queue and of its windows, for a name without braces.
func queueOf(name string) string { return "mortise:1:next:{" + name + "}2" }
func roundOf(name string) string { return queueOf(name) + ":round" }

func windowOf(name string) string { return queueOf(name) + ":window" }

// waiter is a session that waits for one name, under one owner.
type waiter struct {
	anykind.Store
	*ears
	name, owner string
	fenced      bool
	served      int // how often it was granted the lock
}

// grants reports whether sessions ask for grants: see the switch in grants.go. Without it a release reserves the lock.
var grants = os.Getenv("MORTISE_GRANTS") != "0"

// isServed awaits that a release has served the entry: the lock is its owner's, or is reserved for it.
func (w *waiter) isServed(t *testing.T, entry uint64) {
	t.Helper()
	if grants {
		w.served++
		w.await(t, "granted "+w.name+" "+w.owner, w.served)
		return
	}
	w.await(t, fmt.Sprint("reserved ", w.name, " ", entry), 1)
}

// isFirst awaits that the entry is told that it is the first, behind one that a release has served.
func (w *waiter) isFirst(t *testing.T, entry uint64) {
	t.Helper()
	w.await(t, fmt.Sprint("first ", w.name, " ", entry, " ", servedFor()), 1)
}

// servedFor is how long the record lasts once a release has served an entry.
func servedFor() time.Duration {
	if grants {
		return wire.FirstLease + wire.FirstSpare
	}
	return wire.Reservation
}

// kept is what the record has once a release has served the entry.
func (w *waiter) kept(tag string, entry uint64) string {
	if grants {
		return w.owner + "=1"
	}
	return "mortise:reserved:p" + tag + ":" + strconv.FormatUint(entry, 36) + "=-"
}

// waits opens a session that listens for a name.
func waits(t *testing.T, b backend.Backend, name, owner string) *waiter {
	t.Helper()
	s, e := session(t, b)
	s.Subscribe(topic(name))
	e.await(t, "watching "+name, 1)
	return &waiter{Store: s, ears: e, name: name, owner: owner}
}

// enrol asks for the lock under an entry.
func (w *waiter) enrol(t *testing.T, entry uint64, heard ...bool) backend.EnrolReply {
	t.Helper()
	return check.Value(w.Capabilities().Queue.Enrol(t.Context(), backend.EnrolRequest{Entry: entry,
		Heard: slices.Contains(heard, true), AcquireRequest: backend.AcquireRequest{
			Name: w.name, Owner: w.owner, Lease: time.Minute, Fenced: w.fenced}})).In(t)
}

// enters asks for a lock that is held, and gets a place in its queue.
func (w *waiter) enters(t *testing.T, entry uint64) {
	t.Helper()
	r := w.enrol(t, entry)
	check.FatalIf(t, r.Granted || !r.Enrolled || r.Remaining == 0, "%+v; want it refused, with a place", r)
}

// gets asks until the lock is granted, for as long as a reservation for another can last.
func (w *waiter) gets(t *testing.T, entry uint64) backend.EnrolReply {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if r := w.enrol(t, entry); r.Granted || time.Now().After(end) {
			check.FatalIf(t, !r.Granted, "not granted: %+v", r)
			return r
		}
	}
}

// tagOf is what a session is called in the queue, of which it has the last entry.
func tagOf(t *testing.T, srv *redistest.Server, name string) string {
	t.Helper()
	entries := do(t, srv, "ZRANGE", queueOf(name), "-1", "-1").([]any)
	check.FatalIf(t, len(entries) != 1, "the queue of %s is empty", name)
	tag, _, _ := strings.Cut(entries[0].(string)[1:], ":")
	return tag
}

// tries asks as one that enters no queue, for a plain lock or a fenced one.
func tries(t *testing.T, s anykind.Store, name, owner string, fenced bool) anykind.AcquireReply {
	t.Helper()
	return check.Value(s.Acquire(t.Context(), anykind.AcquireRequest{Name: name, Owner: owner, Lease: time.Minute,
		Fenced: fenced})).In(t)
}

// plainAndFenced runs a test for either, over all adapters. Each has a server of its own; n is held by "h:1".
func plainAndFenced(t *testing.T, f func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter,
	fenced bool)) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		for _, fenced := range []bool{false, true} {
			t.Run(fmt.Sprint("fenced ", fenced), func(t *testing.T) {
				do(t, srv, "FLUSHALL")
				s, e := session(t, b)
				h := &waiter{Store: s, ears: e, name: "n", owner: "h:1", fenced: fenced}
				h.takes(t)
				f(t, srv, b, h, fenced)
			})
		}
	})
}

func (w *waiter) takes(t *testing.T) {
	t.Helper()
	r := tries(t, w.Store, w.name, w.owner, w.fenced)
	check.FatalIf(t, !r.Granted, "%+v; want it granted", r)
}

func (w *waiter) frees(t *testing.T) {
	t.Helper()
	release(t, w.Store, w.name, w.owner)
}

// A client that cannot get a place in the queue waits as well: all are told of releases then.
func TestWhereNoPlaceIsToBeHadAllAreTold(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		holder, _ := session(t, b)
		s, _ := session(t, b)
		refused := func(what, name string) {
			t.Helper()
			r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: name, Owner: "o", Lease: time.Minute,
				Enrols: true})
			check.ErrorIf(t, err != nil || r.Granted || r.Enrolled || r.Remaining <= 0,
				"%s: %+v, %v; want it refused, without a place", what, r, err)
		}
		free := func(what, name string) {
			t.Helper()
			next := listen(t, srv, "redisson_lock__channel:{"+name+"}")
			r, err := holder.Release(t.Context(), anykind.ReleaseRequest{Name: name, Owner: "h"})
			check.ErrorIf(t, err != nil || !r.Held, "%s: the release: %+v, %v", what, r, err)
			check.ErrorIf(t, next() != "redisson_lock__channel:{"+name+"} +0", "%s: the release is not told to all", what)
		}
		acquire(t, holder, "a", "h", time.Minute)
		do(t, srv, "SET", queueOf("a"), "x")
		refused("where the key holds other data", "a")
		free("where the key holds other data", "a")

		acquire(t, holder, "b", "h", time.Minute)
		do(t, srv, "CONFIG", "SET", "maxmemory", "1")
		refused("on a full server", "b")
		free("on a full server", "b")
		do(t, srv, "CONFIG", "SET", "maxmemory", "0")
	})
}

// A server that is full grants no lock that was free, and takes no entry. A release is a release there all the same,
// and its waiters are told: those in the queue that the lock is theirs.
func TestAReleaseOnAFullServer(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w, late := waits(t, b, "n", "w:1"), waits(t, b, "n", "late:1")
		w.fenced, late.fenced = fenced, fenced
		w.enters(t, 1)
		tag := tagOf(t, srv, "n")
		do(t, srv, "CONFIG", "SET", "maxmemory", "1")
		defer do(t, srv, "CONFIG", "SET", "maxmemory", "0")
		r := late.enrol(t, 1)
		check.ErrorIf(t, r.Granted || r.Enrolled, "%+v; want it refused, without a place", r)
		h.frees(t)
		w.isServed(t, 1)
		check.Equal(t, "the record is %s", hash(t, srv, "n"), w.kept(tag, 1))
		do(t, srv, "CONFIG", "SET", "maxmemory", "0")
		w.gets(t, 1)
		do(t, srv, "CONFIG", "SET", "maxmemory", "1")
		w.frees(t)
		w.await(t, "released n", 1) // the queue is empty
		late.await(t, "released n", 1)
	})
}

// A server that writes no reservation, be it that its rights were taken from it, releases and tells all.
func TestAReleaseThatCannotReserve(t *testing.T) {
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		w.enters(t, 1)
		do(t, srv, "ACL", "SETUSER", "default", "-hset")
		h.frees(t)
		w.await(t, "reserved n 1", 1) // which it asks after, in vain or not
		w.await(t, "released n", 1)
		do(t, srv, "ACL", "SETUSER", "default", "+hset")
		check.ErrorIf(t, do(t, srv, "EXISTS", "n") != int64(0), "the record is there")
		w.gets(t, 1)
	})
}

// A client that may draw no token sends no waiter to the end of the queue who may: it reserves the lock.
func TestAReleaserThatMayDrawNoTokenReserves(t *testing.T) {
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t, redistest.WithACL("plain on >pw ~* &* +@all -incr -set"))
			h := waits(t, adapter(t, srv.Addr(), login{"plain", "pw"}), "n", "h:1")
			b := adapter(t, srv.Addr(), login{})
			first, second := waits(t, b, "n", "w:1"), waits(t, b, "n", "w:2")
			first.fenced, second.fenced = true, true
			h.takes(t)
			first.enters(t, 1)
			second.enters(t, 2)
			h.frees(t)
			first.await(t, "reserved n 1", 1)
			check.ErrorIf(t, !first.enrol(t, 1).Granted, "the first is not granted the lock")
			first.frees(t)
			second.isServed(t, 2)
		})
	}
}

// n and {n} share a channel, and no queue: a release of one takes nothing out of the other's.
func TestANameAndItsTwinShareNoQueue(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		waiting := map[string]string{"n": "mortise:1:next:{n}2", "{n}": "mortise:1:next:{n}:2"}
		for _, fenced := range []bool{false, true} {
			for name, other := range map[string]string{"n": "{n}", "{n}": "n"} {
				do(t, srv, "FLUSHALL")
				held := map[string]*waiter{}
				waiters := map[string]*waiter{}
				for n, key := range waiting {
					s, e := session(t, b)
					held[n] = &waiter{Store: s, ears: e, name: n, owner: "h:1", fenced: fenced}
					held[n].takes(t)
					waiters[n] = waits(t, b, n, "w:1")
					waiters[n].fenced = fenced
					waiters[n].enters(t, 1)
					check.Equal(t, "%d clients are in the queue of "+n, do(t, srv, "ZCARD", key).(int64), 1)
				}
				held[name].frees(t)
				waiters[name].isServed(t, 1)
				check.Equal(t, "%d clients are in the queue of "+name, do(t, srv, "ZCARD", waiting[name]).(int64), 0)
				check.Equal(t, "%d clients are in the queue of "+other, do(t, srv, "ZCARD", waiting[other]).(int64), 1)
				check.ErrorIf(t, waiters[other].enrol(t, 1).Granted, "%s is granted, and is held", other)
				check.ErrorIf(t, !waiters[name].enrol(t, 1).Granted, "%s is reserved, and not granted", name)
				check.Equal(t, "%s", hash(t, srv, other), "h:1=1")
			}
		}
	})
}

// While a lock is reserved it is refused to all but the entry that it is reserved for, whatever they ask by. The claim
// makes it an ordinary lock, and counts once however often it comes.
func TestAReservationIsForItsEntryAlone(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		w.enters(t, 7)
		tag := tagOf(t, srv, "n")
		h.frees(t)
		w.isServed(t, 7)
		do(t, srv, "PEXPIRE", "n", "50000") // longer than a slow test takes
		check.Equal(t, "the record is %s", hash(t, srv, "n"), w.kept(tag, 7))
		check.Equal(t, "%d entries are left", do(t, srv, "EXISTS", queueOf("n")).(int64), 0)

		other := waits(t, b, "n", "o:1")
		for _, x := range []struct {
			what    string
			granted func() bool
		}{
			{"TryLock", func() bool { return tries(t, other.Store, "n", "o:1", false).Granted }},
			{"TryLock fenced", func() bool { return tries(t, other.Store, "n", "o:1", true).Granted }},
			{"TryLock of the client that it is reserved for", func() bool {
				return tries(t, w.Store, "n", "w:2", fenced).Granted
			}},
			{"a fair lock", func() bool {
				return check.Value(other.Acquire(t.Context(), anykind.AcquireRequest{Kind: backend.KindFair, Name: "n",
					Owner: "o:1", Lease: time.Minute})).In(t).Granted
			}},
			{"LockAll", func() bool {
				in := []backend.AcquireRequest{{Name: "n", Owner: "o:1", Lease: time.Minute, Fenced: fenced}}
				return check.Value(other.Capabilities().Batch.AcquireAll(t.Context(), in)).In(t)[0].Granted
			}},
			{"Quorum", func() bool {
				old := backend.Age{Least: time.Nanosecond}
				for r := (anykind.AcquireReply{}); ; time.Sleep(time.Millisecond) {
					r = check.Value(other.Acquire(t.Context(), anykind.AcquireRequest{Name: "n", Owner: "o:1",
						Lease: time.Minute, Age: &old})).In(t)
					if !r.Young {
						return r.Granted
					}
				}
			}},
			{"the entry's number, of another client", func() bool { return other.enrol(t, 7).Granted }},
			{"another number of the client it is of", func() bool { return !grants && w.enrol(t, 8).Granted }},
			{"a number that begins as the entry's does", func() bool { return !grants && w.enrol(t, 7*36).Granted }},
		} {
			check.ErrorIf(t, x.granted(), "%s was granted a lock that is reserved for another", x.what)
		}
		check.Equal(t, "the record is %s", hash(t, srv, "n"), w.kept(tag, 7))
		rec, err := w.Inspect(t.Context(), topic("n"))
		check.ErrorIf(t, err != nil || (rec.Owner == "w:1") != grants || rec.Owner != "" && !grants,
			"Inspect: %+v, %v; want no owner but the one that it is granted to", rec, err)

		first := w.enrol(t, 7)
		check.FatalIf(t, !first.Granted || (first.Token > 0) != fenced, "the claim: %+v", first)
		pttl(t, srv, "n", 30*time.Second, time.Minute)
		do(t, srv, "PEXPIRE", "n", "20000")
		again := w.enrol(t, 7)
		check.ErrorIf(t, !again.Granted || again.Token < first.Token, "the claim once more: %+v, after %+v", again, first)
		check.Equal(t, "the record is %s", hash(t, srv, "n"), "w:1=1")
		if grants { // each request for an owner has its whole lease
			pttl(t, srv, "n", 30*time.Second, time.Minute)
		} else {
			pttl(t, srv, "n", 10*time.Second, 20*time.Second)
		}
		w.frees(t)
		other.isServed(t, 7) // the first of those that came meanwhile
	})
}

// ages makes the entries in the queue of n old: a young one that has an owner is not told that it is the first.
func ages(t *testing.T, srv *redistest.Server) {
	t.Helper()
	for i, entry := range do(t, srv, "ZRANGE", queueOf("n"), "0", "-1").([]any) {
		do(t, srv, "ZADD", queueOf("n"), "XX", strconv.Itoa(i+1), entry.(string))
	}
}

// A reservation that is not claimed ends, and the next that asks is served.
func TestAReservationEnds(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w, next := waits(t, b, "n", "w:1"), waits(t, b, "n", "o:1")
		next.fenced = fenced
		w.enters(t, 1)
		next.enters(t, 2)
		ages(t, srv)
		h.frees(t)
		w.isServed(t, 1)
		next.isFirst(t, 2)
		left := do(t, srv, "PTTL", "n").(int64)
		check.ErrorIf(t, left > servedFor().Milliseconds() || left == -1, "it is reserved for %d ms", left)
		next.gets(t, 2)
		r := w.enrol(t, 1)
		check.ErrorIf(t, r.Granted || !r.Enrolled, "the claim that comes too late: %+v", r)
	})
}

// Each way of releasing has the queue served.
func TestEachReleaseServesTheQueue(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		can := h.Capabilities()
		entry := uint64(0)
		for what, frees := range map[string]func() (bool, error){
			"Release": func() (bool, error) {
				r, err := h.Store.Store.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "h:1"})
				return r.Held, err
			},
			"Release, an undo": func() (bool, error) {
				r, err := h.Store.Store.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "h:1", Undo: true})
				return r.Held, err
			},
			"ReleaseAll": func() (bool, error) {
				out := make([]backend.ReleaseResult, 1)
				can.Batch.ReleaseAll(t.Context(), []backend.ReleaseRequest{{Name: "n", Owner: "h:1"}}, out)
				return out[0].Held, out[0].Err
			},
			"Serve that yields": func() (bool, error) {
				r, err := can.Queue.Serve(t.Context(), backend.ServeRequest{Name: "n", Owner: "h:1", Next: "h:2",
					Lease: time.Minute, Fenced: fenced, Yield: true, Entry: 1})
				return r.Held && !r.Granted, err
			},
			"ForceRelease": func() (bool, error) { return h.ForceRelease(t.Context(), topic("n")) },
			"a delegated release": func() (bool, error) {
				r, err := can.Delegation.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "h:1"})
				return r.Held, err
			},
			"a fair release": func() (bool, error) {
				r, err := can.Fair.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "h:1"})
				return r.Held, err
			},
			"a fair leaver": func() (bool, error) {
				r, err := can.Fair.Leave(t.Context(), backend.LeaveRequest{Name: "n", Owner: "h:1", Wait: time.Minute})
				return r.Held, err
			},
			"an entry that leaves a reservation": func() (bool, error) {
				do(t, srv, "DEL", "n")
				do(t, srv, "HSET", "n", "mortise:reserved:px:1", "-")
				_, err := srv.Do("EVAL", scripts.LeaveQueueSource, "3", "n", "redisson_lock__channel:{n}", queueOf("n"), "px:1",
					"publish", "")
				return err == nil, err
			},
			"an ask that finds it free": func() (bool, error) {
				do(t, srv, "DEL", "n")
				return !tries(t, h.Store, "n", "h:3", fenced).Granted, nil
			},
			"an ask of many that finds it free": func() (bool, error) {
				do(t, srv, "DEL", "n")
				out, err := can.Batch.AcquireAll(t.Context(), []backend.AcquireRequest{{Name: "n", Owner: "h:4",
					Lease: time.Minute, Fenced: fenced}})
				return !out[0].Granted, err
			},
		} {
			t.Run(what, func(t *testing.T) {
				do(t, srv, "FLUSHALL")
				h.takes(t)
				w := waits(t, b, "n", "w:1")
				w.fenced = fenced
				entry++
				w.enters(t, entry)
				done, err := frees()
				check.FatalIf(t, err != nil || !done, "%v, %v", done, err)
				w.isServed(t, entry)
				check.FatalIf(t, !w.enrol(t, entry).Granted, "the claim was refused: the record is %s", hash(t, srv, "n"))
				check.Equal(t, "the record is %s", hash(t, srv, "n"), "w:1=1")
			})
		}
	})
}

// An entry whose client is gone is passed over in the release that finds it so. Of many, 256 go; for the last of
// these the lock is reserved, as if it lived. Those behind it go, too, since the first that lives is told when to ask.
func TestEntriesOfClientsThatAreGoneArePassedOver(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		dead := func(n int) {
			zadd := []string{"ZADD", queueOf("n")}
			for i := range n {
				zadd = append(zadd, strconv.Itoa(i), fmt.Sprintf("pdead%d:1", i))
			}
			do(t, srv, zadd...)
		}
		for _, n := range []int{1, 2, 20, 255, 256, 600, 3000} {
			w.enters(t, uint64(n))
			dead(n)
			h.frees(t)
			w.isServed(t, uint64(n))
			check.Equal(t, "%d entries are left", do(t, srv, "EXISTS", queueOf("n")).(int64), 0)
			check.FatalIf(t, !w.enrol(t, uint64(n)).Granted, "the claim was refused")
			w.frees(t)
			h.takes(t)
		}
		w.enters(t, 300)
		dead(3000 + 8 + 2)
		h.frees(t)
		w.await(t, "first n 300 1s", 1)
		check.Equal(t, "%d entries are left", do(t, srv, "ZCARD", queueOf("n")).(int64), 1)
		check.Equal(t, "the record is %s", hash(t, srv, "n"), "mortise:reserved:pdead3007:1=-")
		do(t, srv, "PEXPIRE", "n", "1")
		w.gets(t, 300)
		check.Equal(t, "%d entries are left", do(t, srv, "EXISTS", queueOf("n")).(int64), 0)
	})
}

// lapse ends the reservation of n, has an entry ask, and reports whether it was granted.
func (w *waiter) lapse(t *testing.T, srv *redistest.Server, entry uint64) bool {
	t.Helper()
	do(t, srv, "HDEL", "n", do(t, srv, "HKEYS", "n").([]any)[0].(string))
	return w.enrol(t, entry).Granted
}

// Clients that have stopped are told of their reservations, and do not claim them. Three in a row run out; then the
// queue is removed, an ask is granted, and the other clients are told, which come again. A claim begins anew.
func TestAfterThreeReservationsThatRanOutTheNextAskIsGranted(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		const stopped = 5
		last, other := waits(t, b, "n", "w:1"), waits(t, b, "n", "o:1")
		last.fenced, other.fenced = fenced, fenced
		waits(t, b, "n", "s:1").enters(t, 100)
		tag := tagOf(t, srv, "n")
		fill := func() {
			t.Helper()
			for i := range stopped {
				do(t, srv, "ZADD", queueOf("n"), strconv.Itoa(i), fmt.Sprintf("p%s:%d", tag, i))
			}
			last.enters(t, 1)
			other.enters(t, 2)
		}
		fill()
		h.frees(t)
		for n := range 2 {
			check.FatalIf(t, last.lapse(t, srv, 1), "granted after %d reservations", n+1)
		}
		check.FatalIf(t, !last.lapse(t, srv, 1), "not granted after three reservations")
		other.await(t, "released n", 1)
		check.Equal(t, "%d entries are left", do(t, srv, "EXISTS", queueOf("n")).(int64), 0)
		other.enters(t, 2)
		last.frees(t)
		other.isServed(t, 2)
		check.FatalIf(t, !other.enrol(t, 2).Granted, "the claim was refused")

		// A claim between, and one by a client that does not wait.
		do(t, srv, "DEL", "n")
		h.takes(t)
		do(t, srv, "ZADD", queueOf("n"), "-inf", "p"+tag+":7")
		last.enters(t, 3)
		h.frees(t)
		check.FatalIf(t, other.lapse(t, srv, 4), "granted after one reservation")
		check.FatalIf(t, !last.enrol(t, 3).Granted, "the claim was refused")
		check.Equal(t, "the count is %s", fmt.Sprint(do(t, srv, "HGET", roundOf("n"), "lapsed")), "<nil>")
		do(t, srv, "DEL", "n", queueOf("n"), roundOf("n"))
		h.takes(t)
		fill()
		h.frees(t)
		for n := range 3 {
			do(t, srv, "DEL", "n")
			granted := tries(t, h.Store, "n", "h:1", fenced).Granted
			check.FatalIf(t, granted != (n == 2), "TryLock after %d reservations: granted %v", n+1, granted)
		}
	})
}

// When the first of the queue leaves, the entry behind it is told that it is the first now. When an entry leaves for
// which the lock is reserved, the next is served; without one all are told.
func TestAnEntryThatLeavesIsFollowedByTheNext(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		first, second, third := waits(t, b, "n", "f:1"), waits(t, b, "n", "s:1"), waits(t, b, "n", "t:1")
		for i, w := range []*waiter{first, second, third} {
			w.fenced = fenced
			w.enters(t, uint64(i+1))
		}
		leave := func(w *waiter, entry uint64) {
			t.Helper()
			check.NoError(t, w.Capabilities().Queue.Leave(t.Context(),
				backend.LeaveEntryRequest{Name: "n", Entry: entry, Owner: w.owner}))
		}
		leave(first, 1)
		second.await(t, "first n 2 1s", 1) // the record is held for longer
		leave(first, 1)
		check.Equal(t, "%d entries are left", do(t, srv, "ZCARD", queueOf("n")).(int64), 2)
		h.frees(t)
		second.isServed(t, 2)
		leave(second, 2)
		third.isServed(t, 3)
		leave(second, 2)
		check.FatalIf(t, !third.enrol(t, 3).Granted, "the claim was refused")
		second.enters(t, 4)
		third.frees(t)
		second.isServed(t, 4)
		leave(second, 4)
		third.await(t, "released n", 1)
		check.Equal(t, "%d records", do(t, srv, "EXISTS", "n").(int64), 0)
	})
}

// A client that asks every few milliseconds need not listen: the lock is reserved for it for as long as two pauses. How
// long that is another may have written: the reservation is short all the same, and ends.
func TestAnEntryThatPollsIsReservedForBriefly(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		s, _ := session(t, b)
		polls := func() backend.EnrolReply {
			ask := backend.AcquireRequest{Name: "n", Owner: "p:1", Lease: time.Minute, Fenced: fenced}
			return check.Value(s.Capabilities().Queue.Enrol(t.Context(), backend.EnrolRequest{AcquireRequest: ask, Entry: 1,
				Polls: 20 * time.Millisecond})).In(t)
		}
		r := polls()
		check.FatalIf(t, r.Granted || !r.Enrolled, "%+v; want it refused, with a place", r)
		briefly := func(what string, most int64) {
			t.Helper()
			h.frees(t)
			left := do(t, srv, "PTTL", "n").(int64)
			check.ErrorIf(t, left == -1 || left > most, "%s: reserved for %d ms, want %d at most", what, left, most)
		}
		briefly("a pause of 20 ms", 40)
		check.FatalIf(t, !polls().Granted, "the claim was refused")
		release(t, s, "n", "p:1")

		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		for i, pause := range []string{"0.3", "1e-300", "inf", "-inf", "nan", "-1", "1e300", "x", "", "20"} {
			h.takes(t)
			w.enters(t, uint64(i))
			do(t, srv, "ZADD", queueOf("n"), "-inf", "pdead:1")
			do(t, srv, "HSET", roundOf("n"), "polls:pdead:1", pause)
			briefly("a pause of "+pause, servedFor().Milliseconds())
			w.gets(t, uint64(i))
			w.frees(t)
		}
	})
}

// The entry behind a client that polls asks when the reservation for that client is over. A second client that polls,
// behind the first, is not told, so the next entry that is told asks.
func TestTheEntryBehindAPollingClientAsksWhenItsTimeIsOver(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		for pollers := 1; pollers <= 2; pollers++ {
			for i := range pollers {
				s, _ := session(t, b)
				ask := backend.AcquireRequest{Name: "n", Owner: "p:1", Lease: time.Minute, Fenced: fenced}
				r := check.Value(s.Capabilities().Queue.Enrol(t.Context(), backend.EnrolRequest{AcquireRequest: ask,
					Entry: uint64(i + 1), Polls: 20 * time.Millisecond})).In(t)
				check.FatalIf(t, r.Granted || !r.Enrolled, "%+v; want it refused, with a place", r)
			}
			w := waits(t, b, "n", "w:1")
			w.fenced = fenced
			w.enters(t, 7)
			h.frees(t)
			w.await(t, "first n 7 40ms", 1)
			w.gets(t, 7)
			do(t, srv, "FLUSHALL")
			h.takes(t)
		}
	})
}

// What an entry that polls leaves beside the queue goes with the entry: a busy lock keeps the round for ever.
func TestEntriesThatPollLeaveNothing(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, _ bool) {
		s, _ := session(t, b)
		enters := func(entry uint64) {
			ask := backend.AcquireRequest{Name: "n", Owner: "p:1", Lease: time.Minute}
			r := check.Value(s.Capabilities().Queue.Enrol(t.Context(), backend.EnrolRequest{AcquireRequest: ask, Entry: entry,
				Polls: 20 * time.Millisecond})).In(t)
			check.FatalIf(t, r.Granted || !r.Enrolled, "%+v; want it refused, with a place", r)
		}
		left := func(what string) {
			t.Helper()
			fields := do(t, srv, "HKEYS", roundOf("n")).([]any)
			check.ErrorIf(t, len(fields) > 0, "%s: left %q", what, fields)
		}
		enters(1)
		check.NoError(t, s.Capabilities().Queue.Leave(t.Context(),
			backend.LeaveEntryRequest{Name: "n", Entry: 1, Owner: "p:1"}))
		left("the client left")
		enters(2)
		h.frees(t)
		left("the entry was served")
	})
}

// A neighbour may have put much into the record and beside the queue: only what mortise wrote is read.
func TestNeitherTheRoundNorTheRecordIsReadToItsEnd(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		much := func(key string) {
			t.Helper()
			command := []string{"HSET", key}
			for i := range 1000 {
				command = append(command, fmt.Sprintf("x%d", i), "1")
			}
			do(t, srv, command...)
		}
		do(t, srv, "CONFIG", "RESETSTAT")
		much("n")
		w.enters(t, 1)
		w.enters(t, 1)
		check.Equal(t, "the record is read whole %d times", ran(t, srv, "hgetall"), 0)
		do(t, srv, "DEL", "n", queueOf("n"))
		h.takes(t)
		much(roundOf("n"))
		w.enters(t, 1)
		do(t, srv, "CONFIG", "RESETSTAT")
		h.frees(t)
		w.gets(t, 1)
		check.Equal(t, "the round is read whole %d times", ran(t, srv, "hgetall"), 0)
	})
}

// recheck is the longest time after which a client that waits for 10,000 names asks for each again.
const recheck = 10_000 * 22500 * time.Microsecond

// The queue lives ten minutes longer than the lease of the record, the state of windows a minute.
func TestTheQueueAndTheRoundEnd(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		w.enters(t, 1)
		pttl(t, srv, queueOf("n"), time.Minute+recheck, 11*time.Minute)
		do(t, srv, "PERSIST", "n")
		w.enters(t, 1)
		pttl(t, srv, queueOf("n"), recheck, 10*time.Minute)
		r, err := h.Capabilities().Queue.Serve(t.Context(), backend.ServeRequest{Name: "n", Owner: "h:1", Next: "h:2",
			Lease: time.Hour, Yield: true, Entry: 1})
		check.FatalIf(t, err != nil || !r.Held || r.Granted, "%+v, %v", r, err)
		pttl(t, srv, queueOf("n"), time.Hour+recheck, time.Hour+10*time.Minute)
		check.NoError(t, h.Capabilities().Queue.Leave(t.Context(),
			backend.LeaveEntryRequest{Name: "n", Entry: 1, Owner: "h:2"}))
		check.FatalIf(t, !w.enrol(t, 1).Granted, "the claim was refused")
		other := waits(t, b, "n", "o:1")
		other.enters(t, 2)
		foreign := listen(t, srv, "redisson_lock__channel:{n}")
		w.frees(t)
		check.Equal(t, "a window says %q", foreign(), "redisson_lock__channel:{n} 000")
		pttl(t, srv, roundOf("n"), 30*time.Second, time.Minute)
	})
}

// Redisson may have granted a read lock in the record. A handoff without yield then releases the lock, as a release
// does, and puts nothing into the queue: the engine asks again, and enrols then.
func TestAHandoffOfARecordWithAnotherOwnerPutsNothingIntoTheQueue(t *testing.T) {
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		foreign := listen(t, srv, "redisson_lock__channel:{n}")
		do(t, srv, "HSET", "n", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
		r := check.Value(h.Capabilities().Queue.Serve(t.Context(), backend.ServeRequest{Name: "n", Owner: "h:1",
			Next: "h:2", Lease: time.Minute, Fenced: fenced, Entry: 1})).In(t)
		check.Equal(t, "it answers %+v", r, backend.ServeReply{Held: true})
		check.Equal(t, "the record has %v", fmt.Sprint(do(t, srv, "HKEYS", "n")), "[8743c9c0-0795-4907-87fd-6c719a6b4586:1]")
		check.Equal(t, "the queue has %q", fmt.Sprintf("%q", do(t, srv, "ZRANGE", queueOf("n"), "0", "-1")), "[]")
		check.Equal(t, "Redisson is told %q", foreign(), "redisson_lock__channel:{n} 0")
	})
}

// The permissions that docs/reference/deployments.md lists for locks are enough for a release that serves the queue and
// tells no other client.
func TestTheLeastPermissionsServeTheQueue(t *testing.T) {
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t, redistest.WithACL("least on >pw ~* resetchannels &redisson_* -@all "+
				"+evalsha +eval +script|load +ping +subscribe +unsubscribe +exists +hexists +hset +hdel +hlen +pexpire +pttl "+
				"+publish +time +zadd +zrange +zrem +hello +auth +client +select"+
				map[bool]string{true: " +hget +pubsub|numsub"}[grants]))
			b := adapter(t, srv.Addr(), login{"least", "pw"})
			h, w := waits(t, b, "n", "h:1"), waits(t, b, "n", "w:1")
			h.takes(t)
			w.enters(t, 1)
			all := listenAsOurs(t, srv, "redisson_lock__channel:{n}")
			h.frees(t)
			w.isServed(t, 1)
			do(t, srv, "PUBLISH", "redisson_lock__channel:{n}", "over")
			check.Equal(t, "all are told %q", all(), "redisson_lock__channel:{n} over")
		})
	}
}

// unowned tells that n has no owner. It may be reserved for the waiter w:1, or granted to it.
func unowned(t *testing.T, srv *redistest.Server, what string) {
	t.Helper()
	for _, field := range do(t, srv, "HKEYS", "n").([]any) {
		its := strings.HasPrefix(field.(string), "mortise:reserved:") || grants && field == "w:1"
		check.ErrorIf(t, !its, "%s: the lock is held by %q", what, field)
	}
}

// What a neighbour puts into the queue is told to a client that it names, if there is one, and holds the lock up for no
// longer than a reservation lasts. It gets no lock.
func TestEntriesThatAreForged(t *testing.T) {
	check.Long(t)
	forged := []string{"", ":", "x", "x:", ":1", "p", "s", "n", "p:", "pTAG", "pTAG:", "pTAG:1:1", "pTAG:-1", "pTAG:99",
		"pTAG:zzzzzzzzzzzzzzzzzzzz", "sTAG:99", "nTAG:99", "nx:1", "sx:1", "xTAG:99", "TAG:99", "h:1", "mode",
		"mortise:reserved:x", "p:1", "p1:1:1", "\x00\xff\r\n:1", "%s%n:^[^:]*",
		strings.Repeat("x", 1<<16), strings.Repeat(":", 1<<16)}
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		for i, entry := range forged {
			number := uint64(1000 + i)
			w.enters(t, number)
			entry = strings.Replace(entry, "TAG", tagOf(t, srv, "n"), 1)
			what := fmt.Sprintf("%.40q", entry)
			do(t, srv, "ZADD", queueOf("n"), "-inf", entry)
			h.frees(t)
			unowned(t, srv, what)
			left := do(t, srv, "PTTL", "n").(int64)
			check.ErrorIf(t, left == -1 || left > servedFor().Milliseconds(), "%s: reserved for %d ms", what, left)
			do(t, srv, "PEXPIRE", "n", "1")
			w.gets(t, number)
			check.Equal(t, "after "+what+" the record is %s", hash(t, srv, "n"), "w:1=1")
			w.frees(t)
			h.takes(t)
		}
		check.ErrorIf(t, slices.ContainsFunc(w.all(), func(heard string) bool { return strings.Contains(heard, "failed") }),
			"heard %v", w.all())
	})
}

// garbled are what a neighbour leaves at the keys of a lock's queue, its windows and its fair queue.
var garbled = [][]string{
	{"SET", "queue", "x"}, {"RPUSH", "queue", "x"}, {"HSET", "queue", "x", "1"}, {"XADD", "queue", "*", "x", "1"},
	{"SET", "round", "x"}, {"RPUSH", "round", "x"}, {"ZADD", "round", "1", "x"},
	{"HSET", "round", "window", "nan"}, {"HSET", "round", "window", "inf"}, {"HSET", "round", "window", "1e300"},
	{"HSET", "round", "window", "99999999999999"}, {"HSET", "round", "window", "-1"},
	{"HSET", "round", "window", "x"},
	{"HSET", "round", "window", "1", "length", "inf"}, {"HSET", "round", "window", "1", "length", "nan"},
	{"HSET", "round", "window", "1", "length", "-1e300"}, {"HSET", "round", "window", "1", "misses", "inf"},
	{"HSET", "round", "window", "1", "misses", "nan", "due", "nan", "releases", "nan"},
	{"HSET", "round", "pause", "nan", "seen", "nan", "tenures", "nan"}, {"HSET", "round", "tenures", "1e300"},
	{"HSET", "round", "owed", "inf"}, {"HSET", "round", "releases", "-1e300", "owed", "1e300"},
	{"HSET", "round", "due", "1e300"}, {"HSET", "round", "due", "inf", "length", "1e300"},
	{"HSET", "round", "due", "-inf"},
	{"HSET", "round", "lapsed", "nan"}, {"HSET", "round", "lapsed", "1e300"}, {"HSET", "round", "lapsed", "-1"},
	{"HSET", "round", "lapsed", "3"},
	{"HSET", "round", "pause", "inf"}, {"HSET", "round", "releases", "inf"}, {"HSET", "round", "seen", "1e300"},
	{"HSET", "round", "owed", "nan"}, {"HSET", "round", "due", "99999999999"},
	{"SET", "window", "x"}, {"HSET", "window", "x", "1"}, {"ZADD", "window", "1", "x"},
	{"SET", "extra", "x"}, {"SET", "extra", ""}, {"SET", "extra", "\x00:\xff"}, {"HSET", "extra", "x", "1"},
	{"SET", "fair", "x"}, {"HSET", "fair", "x", "1"}, {"RPUSH", "fair", "\x00:\xff"},
}

// Whatever stands there, a release releases, the waiter has the lock soon, and so has a client that does not wait.
func TestKeysThatAreGarbled(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		keys := map[string]string{
			"queue": queueOf("n"), "round": roundOf("n"), "window": queueOf("n") + ":window", "extra": queueOf("n") + ":extra",
			"fair": "redisson_lock_queue:{n}",
		}
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		for _, foreign := range []bool{false, true} {
			if foreign {
				listen(t, srv, "redisson_lock__channel:{n}")
			}
			for i, command := range garbled {
				do(t, srv, "FLUSHALL")
				h.takes(t)
				number := uint64(1000 + i)
				w.enters(t, number)
				what := fmt.Sprintf("%q, a foreign client listens: %v", command, foreign)
				put := append([]string{command[0], keys[command[1]]}, command[2:]...)
				if command[1] == "queue" {
					do(t, srv, "DEL", keys["queue"])
				}
				do(t, srv, put...)
				r, err := h.Store.Release(t.Context(), anykind.ReleaseRequest{Name: "n", Owner: "h:1"})
				check.ErrorIf(t, err != nil || !r.Held, "%s: the release: %+v, %v", what, r, err)
				unowned(t, srv, what)
				w.gets(t, number)
				check.Equal(t, what+": the record is %s", hash(t, srv, "n"), "w:1=1")
				do(t, srv, put...)
				w.frees(t)
				eventually(t, what+": TryLock gets it", func() bool { return tries(t, h.Store, "n", "h:1", fenced).Granted })
				check.Equal(t, what+": the record is %s", hash(t, srv, "n"), "h:1=1")
			}
		}
	})
}

// What another program has written into the round counts as zero: foreign clients have their turns, and ours too.
func TestTurnsEndThoughTheRoundIsGarbled(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, _ bool) {
		listen(t, srv, "redisson_lock__channel:{n}")
		for _, field := range []string{"window", "pause", "length", "misses", "seen", "owed", "charge"} {
			for _, value := range []string{"nan", "inf", "-inf", "1e300", "x"} {
				do(t, srv, "DEL", roundOf("n"), queueOf("n"), windowOf("n"), "n")
				do(t, srv, "HSET", roundOf("n"), field, value)
				h.takes(t)
				h.frees(t)
				window := do(t, srv, "PTTL", windowOf("n")).(int64)
				check.ErrorIf(t, window < 0 || window > wire.WindowLongest.Milliseconds(), "%s %s: a window of %d ms", field, value,
					window)
			}
		}
		// On a full server, too, what is no number is no window.
		do(t, srv, "DEL", roundOf("n"), queueOf("n"), windowOf("n"), "n")
		h.takes(t)
		w := waits(t, b, "n", "w:1")
		w.enters(t, 1)
		do(t, srv, "DEL", "n")
		do(t, srv, "HSET", roundOf("n"), "window", "nan", "lapsed", "nan")
		do(t, srv, "CONFIG", "SET", "maxmemory", "1")
		defer do(t, srv, "CONFIG", "SET", "maxmemory", "0")
		r := w.enrol(t, 1)
		check.ErrorIf(t, !r.Granted, "%+v; want it granted to the first", r)
	})
}

// meaningless are messages on a client's own channel that are none; TAG stands for the client's.
var meaningless = []string{"", "0", "1", "2", "00", "r", "n", ":", "r:", "n:", "r1", "rp", "np", "rpTAG", "rpTAG:",
	"000", "rpTAG:1:", "rpTAG:1 ", "r pTAG:1", "RpTAG:1", "pTAG:1", "rTAG:1", "rrpTAG:1", "rpTAGx:1", "rpxTAG:1",
	"rpTAG::1", "rpTAG:w:1", "rpTAG:-:", "rpTAG:x:w:1", "rpTAG:--:w:1", "rpTAG::w:1", "n1000:pTAG:w:1",
	"rpTAG:-1", "rpTAG:+1", "rpTAG:1.0", "rpTAG:!", "rpTAG:18446744073709551616zzzz", "npTAG:1", "n:pTAG:1",
	"n1pTAG:1", "nx:pTAG:1", "n-1:pTAG:1", "n1.5:pTAG:1", "n1e3:pTAG:1", "n4294967296:pTAG:1", "n1000:px:1", "n1000:",
	"n1000:pTAG", "n1000:pTAG:", "n1000:pTAG:?", "n 1000:pTAG:1", "n1000::pTAG:1", "n1000:TAG:1", "\x00", "\xff\xfe",
	"r\x00pTAG:1", strings.Repeat("r", 1<<16), strings.Repeat("n", 1<<16), "n" + strings.Repeat("1", 1<<16)}

// A client is told on its channel of its entries. What has another form says nothing. A message on the lock's channel
// is a release, and no more; one on the channel of all clients is nothing.
func TestMessagesOfAnyForm(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		h, _ := session(t, b)
		acquire(t, h, "n", "h:1", time.Minute)
		w := waits(t, b, "n", "w:1")
		w.enters(t, 1)
		tag := tagOf(t, srv, "n")
		const channel = "redisson_lock__channel:{n}"
		own := channel + ":to:" + tag
		for _, payload := range meaningless {
			do(t, srv, "PUBLISH", own, strings.ReplaceAll(payload, "TAG", tag))
			do(t, srv, "PUBLISH", channel+":mortise", strings.ReplaceAll(payload, "TAG", tag))
		}
		do(t, srv, "PUBLISH", channel+":mortise", "rp"+tag+":1")
		do(t, srv, "PUBLISH", channel, "rp"+tag+":1")
		w.await(t, "released n", 1)
		first, reserved := "zz", "2s"
		want := []string{"first n 1295 1193h2m47.295s 1", "released n 1", "reserved n 100 1", "watching n 1"}
		if grants { // entries have owners, and the client knows its number
			first, reserved = "-:w:1", "-:w:1"
			want = []string{"first n 1 1193h2m47.295s 1", "released n 1", "reserved n 1 1", "watching n 1"}
		}
		do(t, srv, "PUBLISH", own, "n4294967295:p"+tag+":"+first)
		do(t, srv, "PUBLISH", own, "rp"+tag+":"+reserved)
		w.await(t, strings.TrimSuffix(want[2], " 1"), 1)
		got := slices.Sorted(slices.Values(w.all()))
		check.ErrorIf(t, !slices.Equal(got, want), "heard %q, want %q", got, want)
		check.ErrorIf(t, w.enrol(t, 1).Granted, "granted, and is held")
		check.Equal(t, "the record is %s", hash(t, srv, "n"), "h:1=1")
	})
}

// inWindow tells what is answered in a window: act runs in one, which is opened anew if it was over before act was.
func inWindow(t *testing.T, srv *redistest.Server, name string, act func()) {
	t.Helper()
	for range 50 {
		began := time.Now()
		clock := do(t, srv, "TIME").([]any)
		seconds := check.Value(strconv.ParseInt(clock[0].(string), 10, 64)).In(t)
		micros := check.Value(strconv.ParseInt(clock[1].(string), 10, 64)).In(t)
		do(t, srv, "DEL", name)
		ends := seconds*1000 + micros/1000 + wire.WindowLongest.Milliseconds()
		do(t, srv, "HSET", roundOf(name), "window", fmt.Sprint(ends), "length", "200")
		act()
		if time.Since(began) < 190*time.Millisecond {
			return
		}
	}
	t.Fatal("the machine is too slow to act in a window of 200 ms")
}

// A window refuses our asks, of whichever sort: a client that enrols gets its place, and is told when the window ends.
func TestAWindowRefusesOurAsks(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w, other := waits(t, b, "n", "w:1"), waits(t, b, "n", "o:1")
		w.fenced, other.fenced = fenced, fenced
		listen(t, srv, "redisson_lock__channel:{n}")
		w.enters(t, 1)
		for what, ask := range map[string]func() (granted bool, left time.Duration){
			"TryLock": func() (bool, time.Duration) {
				r := tries(t, h.Store, "n", "h:1", fenced)
				return r.Granted, r.Remaining
			},
			"LockAll": func() (bool, time.Duration) {
				in := []backend.AcquireRequest{{Name: "n", Owner: "o:1", Lease: time.Minute, Fenced: fenced}}
				r := check.Value(h.Capabilities().Batch.AcquireAll(t.Context(), in)).In(t)[0]
				return r.Granted, r.Remaining
			},
			"the first of the queue": func() (bool, time.Duration) {
				r := w.enrol(t, 1)
				return r.Granted || !r.Enrolled || !r.First, r.Remaining
			},
			"the second of the queue": func() (bool, time.Duration) {
				r := other.enrol(t, 2)
				return r.Granted || !r.Enrolled || r.First, r.Remaining
			},
		} {
			var granted bool
			var left time.Duration
			inWindow(t, srv, "n", func() { granted, left = ask() })
			check.ErrorIf(t, granted || left <= 0 || left > wire.WindowLongest,
				"%s: %v, %v left; want it refused until the end", what, granted, left)
			check.Equal(t, what+": %d records", do(t, srv, "EXISTS", "n").(int64), 0)
		}
		inWindow(t, srv, "n", func() { // a release in a window tells the first when that ends
			do(t, srv, "HSET", "n", "h:1", "1")
			h.frees(t)
		})
		eventually(t, "the first is told", func() bool { return strings.Contains(fmt.Sprint(w.all()), "first n 1 ") })
		w.gets(t, 1)
	})
}

// rounds reads the state of n's windows.
func rounds(t *testing.T, srv *redistest.Server, field string) int64 {
	t.Helper()
	value, is := do(t, srv, "HGET", roundOf("n"), field).(string)
	if !is {
		return 0
	}
	return int64(check.Value(strconv.ParseFloat(value, 64)).In(t))
}

// Clients of mortise alone have no windows: a release that they wait for leaves no state of any. A client that only
// listens to Redisson's channel has one, and is told of it as Redisson tells of a release.
func TestAWindowIsForForeignClients(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w, other := waits(t, b, "n", "w:1"), waits(t, b, "n", "o:1")
		w.fenced, other.fenced = fenced, fenced
		w.enters(t, 1)
		other.enters(t, 1)
		h.frees(t)
		w.isServed(t, 1)
		check.Equal(t, "%d states of windows", do(t, srv, "EXISTS", roundOf("n")).(int64), 0)
		r := w.enrol(t, 1)
		check.ErrorIf(t, !r.Granted || r.Foreign, "%+v; want it granted, without foreign waiters", r)

		foreign := listen(t, srv, "redisson_lock__channel:{n}")
		again := w.enrol(t, 1)
		check.ErrorIf(t, !again.Granted || !again.Foreign, "%+v; want it granted, with foreign waiters", again)
		s, e := session(t, b)
		late := &waiter{Store: s, ears: e, name: "n", owner: "l:1", fenced: fenced}
		late.Subscribe(topic("n"))
		late.await(t, "watching n", 1)
		late.enters(t, 1)
		w.frees(t)
		check.Equal(t, "it is told %q", foreign(), "redisson_lock__channel:{n} 000")
		check.Equal(t, "%d records", do(t, srv, "EXISTS", "n").(int64), 0)
		other.await(t, "first n 1 20ms", 1)
		other.gets(t, 1)
		other.frees(t) // the first of two releases between two turns
		late.isServed(t, 1)
		late.gets(t, 1)
	})
}

// A window that no foreign client uses makes the next twice as long, up to 200 ms. After three of them there is none
// for a second, or where no foreign client was seen for sixteen windows' time. One that is used makes the next shorter.
func TestWindowsThatAreMissed(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		listen(t, srv, "redisson_lock__channel:{n}")
		entry := uint64(0)
		window := func(length int64) {
			t.Helper()
			entry++
			w.enters(t, entry)
			do(t, srv, "HSET", roundOf("n"), "pause", "0", "owed", "0")
			h.frees(t)
			w.await(t, fmt.Sprint("first n ", entry, " ", time.Duration(length)*time.Millisecond), 1)
			check.Equal(t, "a window of %d ms", rounds(t, srv, "length"), length)
			time.Sleep(time.Duration(length+1) * time.Millisecond)
			w.gets(t, entry)
			do(t, srv, "DEL", "n") // a release would begin the next turn
			h.takes(t)
		}
		paused := func(since time.Time, lasts int64) {
			t.Helper()
			entry++
			w.enters(t, entry)
			do(t, srv, "HSET", roundOf("n"), "owed", "0")
			h.frees(t)
			clock := rounds(t, srv, "pause") - time.Now().UnixMilli()
			check.ErrorIf(t, clock > lasts || clock < lasts-time.Since(since).Milliseconds(), "windows pause for %d ms", clock)
			if time.Since(since) < time.Second {
				w.isServed(t, entry)
			}
			w.gets(t, entry)
			do(t, srv, "DEL", "n") // a release would begin the next turn
			h.takes(t)
		}
		window(20)
		window(40)
		then := time.Now()
		window(80)
		paused(then, 16*160)
		do(t, srv, "HSET", roundOf("n"), "seen", fmt.Sprint(time.Now().UnixMilli()+9000))
		window(160)
		window(200)
		then = time.Now()
		window(200)
		paused(then, 1000)

		for what, uses := range map[string]func(){
			"a client that hears of its release": func() {},
			"a client that finds it held": func() {
				do(t, srv, "HSET", "n", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
				w.enters(t, entry)
			},
		} {
			entry++
			w.enters(t, entry)
			do(t, srv, "HSET", roundOf("n"), "pause", "0", "owed", "0", "length", "200")
			h.frees(t)
			check.Equal(t, what+": a window of %d ms", rounds(t, srv, "length"), 200)
			uses()
			do(t, srv, "DEL", "n")
			r := w.enrol(t, entry, true)
			check.ErrorIf(t, !r.Granted, "%s: after Redisson's tenure: %+v", what, r)
			check.Equal(t, what+": the next window has %d ms", rounds(t, srv, "length"), 150)
			check.Equal(t, what+": %d windows were missed", rounds(t, srv, "misses"), 0)
			do(t, srv, "DEL", "n") // a release would begin the next turn
			h.takes(t)
		}
	})
}

// A window is told to the first waiter for the fair lock that hears it, and to those before it. Where it was missed,
// the next is told to the first waiter of one more client: one that hears of windows and does not ask may be stopped.
func TestAWindowIsToldToTheFairWaitersUntilOneAsks(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		for _, place := range []string{"dead:1", "a:1", "a:2", "dead:2", javaID + "1", "b:1"} {
			ask(t, h.Store, "n", place, fairWait)
		}
		channel := "redisson_lock__channel:{n}:"
		a, java, last := channel+"a:1", channel+javaID+"1", channel+"b:1"
		told := listen(t, srv, a, channel+"a:2", java, last)
		for entry, want := range [][]string{{a}, {a, java}, {a, java, last}} {
			w.enters(t, uint64(entry))
			h.frees(t)
			for _, message := range want {
				check.Equal(t, "told in window "+fmt.Sprint(entry)+": %q", told(), message+" 0")
			}
			w.gets(t, uint64(entry)) // once the window is over
			do(t, srv, "DEL", "n")   // a release would begin the next turn
			do(t, srv, "HSET", roundOf("n"), "owed", "0")
			h.takes(t)
		}
	})
}

// The place of a killed fair waiter stays until a fair waiter comes. Each window for it would pass unused.
func TestADeadFairPlaceHasNoWindow(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		ask(t, h.Store, "n", "dead:1", fairWait)
		w.enters(t, 1)
		tag := tagOf(t, srv, "n")
		h.frees(t)
		check.Equal(t, "the record is %s", hash(t, srv, "n"), w.kept(tag, 1))
		r := w.enrol(t, 1)
		check.ErrorIf(t, !r.Granted || r.Foreign, "%+v; want it granted, without foreign waiters", r)

		live := listen(t, srv, "redisson_lock__channel:{n}:live:1")
		ask(t, h.Store, "n", "live:1", fairWait)
		do(t, srv, "HSET", roundOf("n"), "pause", "0", "owed", "0") // a second later
		s, e := session(t, b)
		late := &waiter{Store: s, ears: e, name: "n", owner: "l:1", fenced: fenced}
		late.Subscribe(topic("n"))
		late.await(t, "watching n", 1)
		late.enters(t, 2)
		w.frees(t)
		check.Equal(t, "it is told %q", live(), "redisson_lock__channel:{n}:live:1 0")
		check.Equal(t, "%d records", do(t, srv, "EXISTS", "n").(int64), 0)
		late.gets(t, 2)
	})
}

// A client of Redisson waits beside the places of three dead fair clients: the turn has a window for that client only.
func TestDeadFairPlacesHaveNoWindowsBesideRedisson(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		for _, place := range []string{"dead1:1", "dead2:1", "dead3:1"} {
			ask(t, h.Store, "n", place, fairWait)
		}
		listen(t, srv, "redisson_lock__channel:{n}")
		w.enters(t, 1)
		h.frees(t)
		check.Equal(t, "%d releases until the next turn", rounds(t, srv, "owed"), 0)
	})
}

// A client that locks a name again and again, and has no other of mortise beside it, leaves turns to foreign clients.
func TestAWindowNeedsNoQueue(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		h.frees(t) // w's client listens, and nothing else
		h.takes(t)
		foreign := listen(t, srv, "redisson_lock__channel:{n}")
		h.frees(t)
		check.Equal(t, "it is told %q", foreign(), "redisson_lock__channel:{n} +0")
		w.await(t, "released n", 2)
		check.Equal(t, "the window has %d ms", rounds(t, srv, "length"), 20)
		eventually(t, "the window's end", func() bool { return do(t, srv, "EXISTS", windowOf("n")).(int64) == 0 })
		h.takes(t)

		do(t, srv, "HSET", roundOf("n"), "length", "200", "misses", "0")
		then := time.Now()
		h.frees(t) // a window of 200 ms
		r := tries(t, h.Store, "n", "h:2", fenced)
		e := w.enrol(t, 1)
		if time.Since(then) < 190*time.Millisecond {
			check.ErrorIf(t, r.Granted || r.Remaining <= 0, "in a window: %+v", r)
			check.ErrorIf(t, e.Granted || !e.Enrolled || !e.First, "in a window: %+v", e)
		}
		do(t, srv, "HSET", "n", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
		do(t, srv, "DEL", "n")
		e = w.enrol(t, 1, true)
		check.ErrorIf(t, !e.Granted || !e.Foreign, "after Redisson's tenure: %+v", e)
		w.frees(t)
		eventually(t, "the window's end", func() bool { return do(t, srv, "EXISTS", windowOf("n")).(int64) == 0 })
		h.takes(t)
	})
}

// Between two turns of the foreign clients there are as many releases as entries, divided by the number of foreign
// clients; and as many more for a release of theirs that was heard outside of a turn.
func TestBetweenTwoTurnsEachEntryIsServed(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		for foreign, turns := range map[int]string{1: "10001", 2: "10101", 4: "11111"} {
			t.Run(fmt.Sprint(foreign, " foreign clients"), func(t *testing.T) {
				for range foreign {
					listen(t, srv, "redisson_lock__channel:{n}")
				}
				all := make([]*waiter, 4)
				for i := range all {
					all[i] = waits(t, b, "n", fmt.Sprint("w", i, ":1"))
					all[i].fenced = fenced
					all[i].enters(t, 7)
				}
				owner, got := h.owner, ""
				for n := range turns {
					release(t, h.Store, "n", owner)
					got += strconv.FormatInt(do(t, srv, "DEL", windowOf("n")).(int64), 10)
					do(t, srv, "HSET", roundOf("n"), "window", "0") // it was used
					w := all[n%len(all)]
					w.gets(t, 7)
					owner, w.owner = w.owner, fmt.Sprint("w", n%len(all), ":", n+2)
					w.enters(t, 7)
				}
				check.Equal(t, "windows at %s of the releases", got, turns)
				do(t, srv, "FLUSHALL")
				h.takes(t)
			})
			noChannels(t, srv)
		}
	})
}

// Until the foreign client's next turn a lock goes on within its client by one command, which tells of that client.
// While there are no turns it goes on as without foreign clients.
func TestALockGoesOnWithinItsClientUntilTheForeignOnesTurn(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		listen(t, srv, "redisson_lock__channel:{n}")
		n := 1
		serve := func() backend.ServeReply {
			t.Helper()
			n++
			return check.Value(h.Capabilities().Queue.Serve(t.Context(), backend.ServeRequest{Name: "n",
				Owner: fmt.Sprint("h:", n-1), Next: fmt.Sprint("h:", n), Lease: time.Minute, Fenced: fenced, Yield: true,
				Entry: 7})).In(t)
		}
		do(t, srv, "HSET", roundOf("n"), "pause", fmt.Sprint(time.Now().UnixMilli()+2000))
		r := serve()
		check.ErrorIf(t, !r.Granted || r.Foreign, "%+v; want it granted as if there were no foreign waiters", r)
		do(t, srv, "HSET", roundOf("n"), "pause", "0", "owed", "2")
		for range 2 {
			r = serve()
			check.ErrorIf(t, !r.Granted || !r.Foreign, "%+v; want it granted, with foreign waiters", r)
		}
		r = serve()
		check.ErrorIf(t, r.Granted || !r.Held, "%+v; want it released for all", r)
		check.Equal(t, "%d records", do(t, srv, "EXISTS", "n").(int64), 0)
	})
}

// A release by a foreign client that is heard outside of its turn costs as many releases as the turn did.
func TestAForeignTenureOutsideOfATurnCostsOne(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		listen(t, srv, "redisson_lock__channel:{n}")
		for _, heard := range []int{1, 2, 3, 8, 20} {
			do(t, srv, "DEL", roundOf("n"))
			w.owner = fmt.Sprint("w:", heard)
			w.enters(t, 7)
			h.frees(t) // a turn
			check.Equal(t, "%d turns", do(t, srv, "EXISTS", windowOf("n")).(int64), 1)
			for i := range heard {
				do(t, srv, "HSET", "n", javaID+"1", "1")
				r := w.enrol(t, 7, i > 0)
				check.FatalIf(t, r.Granted, "granted, and a foreign client has it")
				do(t, srv, "DEL", "n")
			}
			r := w.enrol(t, 7, true)
			check.FatalIf(t, !r.Granted || !r.Foreign, "%+v; want it granted, with foreign waiters", r)
			check.Equal(t, "%d releases until the next turn", rounds(t, srv, "owed"), int64(heard)-1)
			do(t, srv, "DEL", "n")
			h.takes(t)
		}
	})
}

// Beside one entry there are as many turns in a row as there are foreign clients, each of which ends by its use.
func TestEachForeignClientHasAWindow(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		for number, want := range map[int]int{1: 1, 2: 2, 10: 8} {
			t.Run(fmt.Sprint(number, " foreign clients"), func(t *testing.T) {
				w := waits(t, b, "n", "w:1")
				w.fenced = fenced
				var told func() string
				for range number {
					told = listen(t, srv, "redisson_lock__channel:{n}")
				}
				w.enters(t, 1)
				h.frees(t)
				for i := range want {
					check.Equal(t, "it is told %q", told(), "redisson_lock__channel:{n} 000")
					do(t, srv, "HSET", "n", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
					do(t, srv, "DEL", "n")
					r := w.enrol(t, 1, true)
					check.FatalIf(t, r.Granted != (i == want-1), "after window %d: %+v", i+1, r)
				}
				do(t, srv, "FLUSHALL")
				h.takes(t)
			})
			noChannels(t, srv)
		}
	})
}

// Where a lock was removed under its owners, each takes its own entry along when it unlocks.
func TestOwnersOfARemovedLockLeaveNoEntryBehind(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		enter := func(name string) {
			t.Helper()
			acquire(t, s, name, "a:1", time.Minute)
			if r, err := s.Enter(t.Context(), backend.EnterRequest{Name: name,
				Owner: "b:1", Under: "a:1", Holds: 1, Lease: time.Minute}); err != nil || !r.Granted {
				t.Fatal(r, err)
			}
		}
		leave := func(name, owner string) bool {
			t.Helper()
			r, err := s.Release(t.Context(), anykind.ReleaseRequest{Kind: backend.KindDelegated, Name: name, Owner: owner})
			check.NoError(t, err)
			return r.Held
		}
		enter("n")
		do(t, srv, "DEL", "n")
		for _, owner := range []string{"b:1", "a:1"} {
			check.ErrorIf(t, leave("n", owner), "%s held what was removed", owner)
		}
		equal(t, "the keys that are left", keys(t, srv), []string{})
	})
}

// A dead client whose entry is the first does not keep the next one from being the first while a foreign client has the
// lock: that client alone asks at once after a foreign release.
func TestADeadClientIsNotTheFirstBesideAForeignOwner(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w, behind := waits(t, b, "n", "w:1"), waits(t, b, "n", "o:1")
		w.fenced, behind.fenced = fenced, fenced
		do(t, srv, "DEL", "n")
		do(t, srv, "HSET", "n", javaID+"1", "1")
		do(t, srv, "PEXPIRE", "n", "30000")
		do(t, srv, "ZADD", queueOf("n"), "1", "pdead:1", "2", "pdead:2", "3", "pdead:3")
		do(t, srv, "HSET", roundOf("n"), "polls:pdead:2", "20")
		r := w.enrol(t, 1)
		check.ErrorIf(t, r.Granted || !r.Enrolled || !r.First, "behind dead entries: %+v; want it the first", r)
		r = behind.enrol(t, 2)
		check.ErrorIf(t, r.Granted || !r.Enrolled || r.First, "behind a live entry: %+v; want it not the first", r)
		check.Equal(t, "%d entries are left", do(t, srv, "ZCARD", queueOf("n")).(int64), 3) // one polls
		do(t, srv, "ZADD", queueOf("n"), "1", "pdead:1")
		behind.enrol(t, 2)
		w.await(t, "first n 1 1s", 1) // the request of the other client has made it the first
	})
}

// A window that begins while all entries are those of dead clients keeps mortise out as one without a queue does.
func TestAWindowOverAQueueOfDeadClientsIsHeeded(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		listen(t, srv, "redisson_lock__channel:{n}")
		do(t, srv, "ZADD", queueOf("n"), "1", "pdead:1", "2", "pdead:3")
		do(t, srv, "HSET", roundOf("n"), "length", "200")
		h.frees(t)
		r := w.enrol(t, 1)
		check.ErrorIf(t, r.Granted, "a lock was granted in a window")
	})
}

// A window that begins while the first entry is that of a dead client is told to the first one that lives.
func TestAWindowIsToldToTheFirstEntryThatLives(t *testing.T) {
	check.Long(t)
	plainAndFenced(t, func(t *testing.T, srv *redistest.Server, b backend.Backend, h *waiter, fenced bool) {
		w := waits(t, b, "n", "w:1")
		w.fenced = fenced
		listen(t, srv, "redisson_lock__channel:{n}")
		w.enters(t, 2)
		do(t, srv, "ZADD", queueOf("n"), "1", "pdead:1", "2", "pdead:2", "3", "pdead:3")
		do(t, srv, "HSET", roundOf("n"), "polls:pdead:2", "20")
		h.frees(t)
		w.await(t, "first n 2 20ms", 1)
		check.Equal(t, "%d records", do(t, srv, "EXISTS", "n").(int64), 0)
		check.Equal(t, "%d entries are left", do(t, srv, "ZCARD", queueOf("n")).(int64), 2) // one polls
		inWindow(t, srv, "n", func() {                                                      // a release in a window, too
			do(t, srv, "ZADD", queueOf("n"), "1", "pdead:1")
			do(t, srv, "HSET", "n", "h:1", "1")
			h.frees(t)
		})
		eventually(t, "the first is told", func() bool { return strings.Count(fmt.Sprint(w.all()), "first n 2 ") == 2 })
	})
}

// A client waits beside a JVM whose threads hold the lock again and again, for as long with a dead entry before it.
func TestADeadClientBeforeItDelaysAWaiterBesideRedissonBriefly(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	for _, dead := range []bool{false, true} {
		t.Run(fmt.Sprint("dead ", dead), func(t *testing.T) {
			do(t, srv, "FLUSHALL")
			listen(t, srv, "redisson_lock__channel:{n}")
			c := client(t, adapters["go-redis"](t, srv.Addr(), login{}))
			hold := func() {
				do(t, srv, "HSET", "n", javaID+"1", "1")
				do(t, srv, "PEXPIRE", "n", "30000")
			}
			hold()
			if dead {
				do(t, srv, "ZADD", queueOf("n"), "1", "pdead:1")
			}
			got := make(chan error, 1)
			go func() {
				l, err := c.Lock(t.Context(), "n")
				if err == nil {
					err = l.Unlock(t.Context())
				}
				got <- err
			}()
			for tenures := 0; ; tenures++ {
				select {
				case err := <-got:
					check.NoError(t, err)
					t.Logf("the client had the lock after %d tenures of Redisson's", tenures)
					return
				case <-time.After(100 * time.Millisecond):
				}
				check.FatalIf(t, tenures == 100, "the client did not get the lock")
				if do(t, srv, "HDEL", "n", javaID+"1") == int64(0) {
					continue // the client has it, or it is reserved
				}
				do(t, srv, "PUBLISH", "redisson_lock__channel:{n}", "0")
				time.Sleep(time.Millisecond) // the thread asks again
				if do(t, srv, "EXISTS", "n") == int64(0) {
					hold()
				}
			}
		})
	}
}
