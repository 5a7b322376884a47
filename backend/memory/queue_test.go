package memory

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// turns is a journal that hears of the queue, too.
type turns struct {
	journal
	from time.Time // when the last grant began
}

var _ backend.QueueHandler = (*turns)(nil)

// lockOf returns the lock of a name.
func lockOf(s *Store, name string) *record.Lock {
	if r := s.names[name]; r != nil {
		return &r.Lock
	}
	return new(record.Lock)
}

func (j *turns) Granted(t backend.Topic, g backend.Grant) {
	j.from = g.From
	j.add(fmt.Sprintf("granted %s %s %v", t.Name, g.Owner, g.Lease))
}

func (j *turns) Reserved(t backend.Topic, entry uint64) {
	j.add(fmt.Sprintf("reserved %s %d", t.Name, entry))
}

func (j *turns) First(t backend.Topic, entry uint64, after time.Duration) {
	j.add(fmt.Sprintf("first %s %d %v", t.Name, entry, after))
}

func (j *turns) Wanted(t backend.Topic, entry uint64) {
	j.add(fmt.Sprintf("wanted %s %d", t.Name, entry))
}

func (j *turns) Freed(t backend.Topic) { j.add("freed " + t.Name) }

// waiter is a session that waits for the lock n.
type waiter struct {
	backend.Store
	*turns
	t *testing.T
}

// watch opens a session that watches n.
func watch(t *testing.T, s *Store) *waiter {
	t.Helper()
	w := &waiter{turns: new(turns), t: t}
	var err error
	if w.Store, err = s.Open(w.turns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	w.Subscribe(topic("n"))
	w.expect(t, "watching n")
	return w
}

// granted is what the session hears of a grant to its entry.
func (w *waiter) granted(entry uint64) string { return fmt.Sprintf("granted n %p:%d 1s", w, entry) }

func (w *waiter) enrol(entry uint64) backend.EnrolReply {
	w.t.Helper()
	q := backend.AcquireRequest{Name: "n", Owner: fmt.Sprintf("%p:%d", w, entry), Lease: time.Minute}
	r, err := w.Capabilities().Queue.Enrol(w.t.Context(), backend.EnrolRequest{AcquireRequest: q, Entry: entry})
	if err != nil {
		w.t.Fatalf("Enrol: %v", err)
	}
	return r
}

// wait enrols as an entry, which must be refused.
func (w *waiter) wait(entry uint64) {
	w.t.Helper()
	if r := w.enrol(entry); r.Granted || !r.Enrolled {
		w.t.Fatalf("Enrol: %+v, want it refused and enrolled", r)
	}
}

func (w *waiter) leave(entry uint64) {
	w.t.Helper()
	q := backend.LeaveEntryRequest{Name: "n", Entry: entry, Owner: fmt.Sprintf("%p:%d", w, entry)}
	if err := w.Capabilities().Queue.Leave(w.t.Context(), q); err != nil {
		w.t.Fatalf("Leave: %v", err)
	}
}

func release(t *testing.T, x backend.Store, name, owner string) {
	t.Helper()
	if r, err := x.Release(t.Context(), backend.ReleaseRequest{Name: name, Owner: owner}); err != nil || !r.Held {
		t.Fatalf("Release(%s, %s): %+v, %v", name, owner, r, err)
	}
}

// queueing runs a test with two sessions that wait for n, which a:1 of a third holds.
func queueing(
	t *testing.T, lease time.Duration,
	test func(t *testing.T, s *Store, a backend.Store, first, second *waiter),
) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		a, _ := open(t, s)
		acquire(t, a, "n", "a:1", lease)
		first, second := watch(t, s), watch(t, s)
		first.wait(1)
		second.wait(2)
		test(t, s, a, first, second)
	})
}

func TestTheEndOfALeaseAlsoOfAFirstOneServesTheQueueAtOnce(t *testing.T) {
	const lease = 50 * time.Millisecond
	queueing(t, lease, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		time.Sleep(lease)
		first.expect(t, "changed n", first.granted(1))
		second.expect(t, "changed n")
		time.Sleep(backend.FirstLease)
		second.expect(t, "changed n", second.granted(2))
		first.read()
		time.Sleep(backend.FirstLease - time.Millisecond)
		if r := first.enrol(3); r.Granted || !r.First || r.Remaining != time.Millisecond {
			t.Errorf("Enrol of a lock that was just granted: %+v, want it refused for 1ms as the first", r)
		}
		if r := second.enrol(2); !r.Granted {
			t.Errorf("Enrol of the owner: %+v, want it granted again", r)
		}
		if r, err := a.Inspect(t.Context(), "n"); err != nil || r.Remaining != time.Minute {
			t.Errorf("the record then is %+v, %v; want the lease to begin with the request", r, err)
		}
		if len(s.names) != 1 || s.expiries.Len() != 1 {
			t.Errorf("%d names, %d of them expire; want one", len(s.names), s.expiries.Len())
		}
	})
}

func TestEachWayInWhichALockGetsFreeServesTheQueue(t *testing.T) {
	for how, free := range map[string]func(a backend.Store, name, owner string) error{
		"release": func(a backend.Store, name, owner string) error {
			_, err := a.Release(t.Context(), backend.ReleaseRequest{Name: name, Owner: owner})
			return err
		},
		"forced": func(a backend.Store, name, owner string) error {
			_, err := a.ForceRelease(t.Context(), backend.ForceRequest{Name: name})
			return err
		},
		"fair": func(a backend.Store, name, owner string) error {
			_, err := a.Capabilities().Fair.Release(t.Context(), backend.ReleaseRequest{Name: name, Owner: owner})
			return err
		},
		"fair, undone": func(a backend.Store, name, owner string) error {
			_, err := a.Capabilities().Fair.Leave(t.Context(), backend.LeaveRequest{Name: name, Owner: owner})
			return err
		},
		"delegated": func(a backend.Store, name, owner string) error {
			_, err := a.Capabilities().Delegation.Release(t.Context(), backend.ReleaseRequest{Name: name, Owner: owner})
			return err
		},
		"of several": func(a backend.Store, name, owner string) error {
			out := make([]backend.ReleaseResult, 1)
			a.Capabilities().Batch.ReleaseAll(t.Context(), []backend.ReleaseRequest{{Name: name, Owner: owner}}, out)
			return out[0].Err
		},
		"yielding": func(a backend.Store, name, owner string) error {
			q := backend.ServeRequest{Name: name, Owner: owner, Next: "a:2", Lease: time.Minute, Yield: true, Entry: 1}
			_, err := a.Capabilities().Queue.Serve(t.Context(), q)
			return err
		},
	} {
		t.Run(how, func(t *testing.T) {
			queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
				if err := free(a, "n", "a:1"); err != nil {
					t.Fatal(err)
				}
				first.expect(t, first.granted(1))
				second.expect(t)
			})
		})
	}
}

func TestEachRequestForALockThatWasDeletedServesItsQueue(t *testing.T) {
	q := backend.AcquireRequest{Name: "n", Owner: "a:2", Lease: time.Minute}
	for how, ask := range map[string]func(a backend.Store) (granted bool, err error){
		"Acquire": func(a backend.Store) (bool, error) {
			r, err := a.Acquire(t.Context(), q)
			return r.Granted, err
		},
		"AcquireAged": func(a backend.Store) (bool, error) {
			r, err := a.Capabilities().Age.AcquireAged(t.Context(), backend.AgedRequest{AcquireRequest: q})
			return r.Granted, err
		},
		"AcquireAll": func(a backend.Store) (bool, error) {
			r, err := a.Capabilities().Batch.AcquireAll(t.Context(), []backend.AcquireRequest{q})
			return r[0].Granted, err
		},
		"Enrol": func(a backend.Store) (bool, error) {
			r, err := a.Capabilities().Queue.Enrol(t.Context(), backend.EnrolRequest{AcquireRequest: q, Entry: 1})
			return r.Granted, err
		},
	} {
		t.Run(how, func(t *testing.T) {
			queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
				s.Delete("n")
				first.expect(t, "changed n")
				if granted, err := ask(a); granted || err != nil {
					t.Errorf("granted: %v, %v; want it refused", granted, err)
				}
				first.expect(t, first.granted(1))
			})
		})
	}
	queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		s.Delete("n")
		if r := first.enrol(1); !r.Granted {
			t.Errorf("Enrol of the first: %+v, want it granted", r)
		}
	})
}

func TestOnlyEntriesOfSessionsThatWatchAreServed(t *testing.T) {
	for how, end := range map[string]func(w *waiter){
		"unsubscribed": func(w *waiter) { w.Unsubscribe(topic("n")) },
		"closed":       func(w *waiter) { w.Close() },
		"left":         func(w *waiter) { w.leave(1) },
	} {
		t.Run(how, func(t *testing.T) {
			queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
				end(first)
				second.read()
				release(t, a, "n", "a:1")
				second.expect(t, second.granted(2))
			})
		})
	}
	queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		release(t, a, "n", "a:1")
		first.Close()
		time.Sleep(backend.FirstLease)
		second.expect(t, "changed n", second.granted(2))
		second.Close()
		time.Sleep(backend.FirstLease)
		synctest.Wait()
		if len(s.names) != 0 {
			t.Errorf("sessions that closed left %d names", len(s.names))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := New()
		a, told := open(t, s) // its handler is no backend.QueueHandler
		w := watch(t, s)
		a.Subscribe(topic("n"))
		acquire(t, w, "n", "w:1", time.Minute)
		q := backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: time.Minute}
		r, err := a.Capabilities().Queue.Enrol(t.Context(), backend.EnrolRequest{AcquireRequest: q, Entry: 1})
		if err != nil || r.Enrolled {
			t.Errorf("Enrol of a session that cannot be told: %+v, %v", r, err)
		}
		w.wait(1)
		told.read()
		release(t, w, "n", "w:1")
		w.expect(t, w.granted(1))
		told.expect(t)
	})
}

func TestAnEntryThatLeavesHasTheNextServedOrTold(t *testing.T) {
	queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		first.leave(7) // no entry of this session
		second.leave(1)
		second.expect(t)
		first.leave(1)
		second.expect(t, "first n 2 1s")
		first.wait(3)
		release(t, a, "n", "a:1")
		second.expect(t, second.granted(2))
		first.expect(t)
		second.leave(2)
		first.expect(t, first.granted(3))
		first.leave(3)
		first.expect(t, "released n")
	})
}

func TestASessionThatYieldsGoesToTheEndOfTheQueue(t *testing.T) {
	queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		release(t, a, "n", "a:1")
		first.enrol(1)
		first.wait(3)
		serve := func(owner, next string) backend.ServeReply {
			q := backend.ServeRequest{Name: "n", Owner: owner, Next: next, Lease: time.Minute, Yield: true, Entry: 3,
				Instead: fmt.Sprintf("%p:3", first)}
			r, err := first.Capabilities().Queue.Serve(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first.read()
		if r := serve(fmt.Sprintf("%p:1", first), "f:1"); !r.Held || r.Granted || !r.Enrolled {
			t.Errorf("Serve with another in the queue: %+v, want it released", r)
		}
		second.expect(t, second.granted(2))
		first.expect(t)
		second.leave(2)
		first.expect(t, "granted n f:1 1s")
		if n := len(lockOf(s, "n").Queue); n != 0 {
			t.Errorf("%d entries, want none", n)
		}
		if r := serve("f:1", "f:2"); !r.Granted {
			t.Errorf("Serve with no other in the queue: %+v, want it granted", r)
		}
	})
}

func fairTopic(name, owner string) backend.Topic {
	return backend.Topic{Kind: backend.KindFair, Name: name, Owner: owner}
}

func TestAFairWaiterThatListensGoesBeforeTheQueue(t *testing.T) {
	queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		fair, told := open(t, s)
		fair.Subscribe(fairTopic("n", "f:1"))
		told.read()
		q := backend.FairRequest{Wait: time.Minute,
			AcquireRequest: backend.AcquireRequest{Name: "n", Owner: "f:1", Lease: time.Minute}}
		for i, granted := range []bool{false, true} {
			r, err := fair.Capabilities().Fair.Acquire(t.Context(), q)
			if err != nil || r.Granted != granted {
				t.Fatalf("Acquire %d: %+v, %v", i, r, err)
			}
			if !granted {
				release(t, a, "n", "a:1")
				told.expect(t, "released n")
				first.expect(t, fmt.Sprintf("first n 1 %v", backend.Absence))
			}
		}
		_, err := fair.Capabilities().Fair.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "f:1"})
		if err != nil {
			t.Fatal(err)
		}
		first.expect(t, first.granted(1))
	})
}

// The owner's lease must not last longer than the store keeps the lock, even if the process stops between the two.
func TestAGrantBeginsAtTheTimeOfItsStep(t *testing.T) {
	queueing(t, time.Minute, func(t *testing.T, s *Store, _ backend.Store, first, _ *waiter) {
		begun := time.Now()
		s.mu.Lock()
		s.run("n", func(n *record.Name, st *record.Step) {
			n.Lock.Release(st, backend.ReleaseRequest{Name: "n", Owner: "a:1"})
			time.Sleep(backend.FirstLease / 2)
		})
		s.mu.Unlock()
		first.expect(t, first.granted(1))
		if !first.from.Equal(begun) {
			t.Errorf("the grant begins %v after the step", first.from.Sub(begun))
		}
	})
}

// In real time: in a bubble the clock stands still between the permits.
func TestPermitsOfOneAcquisitionEndTogether(t *testing.T) {
	s := New()
	var ids []string
	for i := range backend.MaxPermits {
		ids = append(ids, fmt.Sprintf("%032x", i))
	}
	q := backend.PermitRequest{Name: "n", Owner: strings.Join(ids, ","), Lease: time.Minute, Limit: backend.MaxPermits}
	session, err := s.Open(&journal{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Capabilities().Semaphores.Acquire(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	out := s.names["n"].Permits.Out
	if len(out) != len(ids) {
		t.Fatalf("%d permits are in use, want %d", len(out), len(ids))
	}
	for id, end := range out {
		if end != out[ids[0]] {
			t.Fatalf("permit %s ends %v after the first", id, end-out[ids[0]])
		}
	}
}

func TestAStoreThatIsDownTellsNoWaiterForPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, topic := New(), backend.Topic{Kind: backend.KindSemaphore, Name: "n"}
		var all []*waiter
		for i := range 3 { // the first takes the permit, the others wait for it
			w := watch(t, s)
			w.Subscribe(topic)
			q := backend.PermitRequest{Name: "n", Owner: strings.Repeat(fmt.Sprint(i+1), 32), Lease: time.Minute, Limit: 1,
				Enrolment: backend.Enrolment{Entry: uint64(i + 1), Least: 1}}
			_, err := w.Capabilities().Semaphores.Acquire(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, w)
		}
		q := backend.ReleaseRequest{Name: "n", Owner: strings.Repeat("1", 32)}
		_, err := all[0].Capabilities().Semaphores.Release(t.Context(), q)
		if got := all[1].read(); err != nil || !slices.Contains(got, "reserved n 2") {
			t.Fatalf("Release: %v, and the second session was told %q", err, got)
		}
		all[2].read()
		s.SetDown(errors.New("down"))
		all[1].Close() // its permit would go to the third
		all[2].expect(t)
	})
}

func TestAStoreThatIsDownServesNoQueueAndFlushForgetsIt(t *testing.T) {
	const lease = 50 * time.Millisecond
	queueing(t, lease, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		s.SetDown(errors.New("down"))
		time.Sleep(2 * lease)
		second.Close()
		first.expect(t)
		s.SetDown(nil)
		first.expect(t, "changed all", "watching n", "changed n", first.granted(1))
		first.wait(2)
		s.Flush()
		if r := acquire(t, a, "n", "a:1", lease); !r.Granted || len(lockOf(s, "n").Queue) != 0 {
			t.Errorf("Acquire after Flush: %+v, and the lock is %+v; want it granted, and no queue", r, lockOf(s, "n"))
		}
	})
}

// A record that ends without a release, and has no queue, leaves nothing about turns behind.
func TestARecordThatEndsWithoutAQueueLeavesNoTurn(t *testing.T) {
	const lease = 50 * time.Millisecond
	kept := func(t *testing.T, s *Store, extra, turns bool) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		l := lockOf(s, "n")
		if (l.Extra.Session != 0) != extra || (l.Turn != 0) != turns {
			t.Errorf("the lock is %+v; want an extra entry: %v, a turn: %v", l, extra, turns)
		}
	}
	for how, end := range map[string]func(s *Store){
		"expired": func(*Store) { time.Sleep(lease); synctest.Wait() },
		"flushed": (*Store).Flush,
	} {
		t.Run(how+", extra", func(t *testing.T) {
			queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
				first.leave(1)
				second.leave(2)
				q := backend.ServeRequest{Name: "n", Owner: "a:1", Next: "a:2", Lease: lease, Yield: true, Entry: 3}
				r, err := a.Capabilities().Queue.Serve(t.Context(), q)
				if err != nil || !r.Granted {
					t.Fatalf("Serve: %+v, %v", r, err)
				}
				kept(t, s, true, false)
				end(s)
				kept(t, s, false, false)
			})
		})
		t.Run(how+", turns", func(t *testing.T) {
			queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
				fair, _ := open(t, s)
				fair.Subscribe(fairTopic("n", "f:1"))
				asks := func() bool {
					r, err := fair.Capabilities().Fair.Acquire(t.Context(), backend.FairRequest{Wait: time.Minute,
						AcquireRequest: backend.AcquireRequest{Name: "n", Owner: "f:1", Lease: lease}})
					return err == nil && r.Granted
				}
				refused := !asks()
				release(t, a, "n", "a:1")
				if granted := asks(); !refused || !granted {
					t.Fatalf("the fair lock was refused: %v, then granted: %v", refused, granted)
				}
				first.leave(1)
				second.leave(2)
				kept(t, s, false, true)
				end(s)
				kept(t, s, false, false)
			})
		})
	}
}

func TestAGrantToASessionThatPollsLastsForTwoOfItsPauses(t *testing.T) {
	const polls = 20 * time.Millisecond
	queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		b, told := open(t, s)
		ask := func() backend.EnrolReply {
			q := backend.AcquireRequest{Name: "n", Owner: "b:1", Lease: time.Minute}
			r, err := b.Capabilities().Queue.Enrol(t.Context(), backend.EnrolRequest{AcquireRequest: q, Entry: 1, Polls: polls})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := ask(); r.Granted || !r.Enrolled {
			t.Errorf("Enrol of a session that polls: %+v, want it enrolled", r)
		}
		first.leave(1)
		second.leave(2)
		second.wait(3)
		second.read()
		release(t, a, "n", "a:1")
		time.Sleep(2*polls - time.Millisecond)
		second.expect(t)
		if r := ask(); !r.Granted {
			t.Errorf("Enrol within two pauses: %+v, want it granted", r)
		}
		second.leave(3)
		second.wait(4)
		acquire(t, a, "n", "a:1", time.Minute) // refused
		release(t, b, "n", "b:1")
		second.expect(t, second.granted(4))
		ask()
		second.wait(5)
		second.leave(4) // the session that polls is granted the lock
		time.Sleep(2 * polls)
		second.expect(t, "changed n", second.granted(5))
		told.expect(t, "changed n")
	})
}

// The engine knows no owner for a late message that an entry is the first.
func TestALeaveWithoutAnOwnerEndsNoReservationForTheFairLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		w := watch(t, s)
		s.mu.Lock()
		s.run("n", func(n *record.Name, st *record.Step) { n.Lock.KeptFair = st.Now + backend.Absence })
		s.mu.Unlock()
		if err := w.Capabilities().Queue.Leave(t.Context(), backend.LeaveEntryRequest{Name: "n", Entry: 1}); err != nil {
			t.Fatal(err)
		}
		if r, err := w.Inspect(t.Context(), "n"); err != nil || !r.Reserved {
			t.Errorf("the lock is %+v, %v", r, err)
		}
	})
}
