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
)

// turns is a journal that hears of the queue, too.
type turns struct{ journal }

var _ backend.QueueHandler = (*turns)(nil)

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
	if err := w.Capabilities().Queue.Leave(w.t.Context(), "n", entry); err != nil {
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

func TestTheEndOfALeaseAndOfAReservationServesTheQueueAtOnce(t *testing.T) {
	const lease = 50 * time.Millisecond
	queueing(t, lease, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		time.Sleep(lease)
		first.expect(t, "changed n", "reserved n 1")
		second.expect(t, "changed n", "first n 2 1s")
		time.Sleep(reservation)
		second.expect(t, "changed n", "reserved n 2")
		first.read()
		time.Sleep(reservation - time.Millisecond)
		if r := first.enrol(3); r.Granted || !r.First || r.Remaining != time.Millisecond {
			t.Errorf("Enrol of a reserved lock: %+v, want it refused for 1ms as the first", r)
		}
		if r := second.enrol(2); !r.Granted {
			t.Errorf("the claim: %+v", r)
		}
		if r, err := a.Inspect(t.Context(), "n"); err != nil || r.Remaining != time.Minute {
			t.Errorf("the record of a claim is %+v, %v; want its lease to begin with the claim", r, err)
		}
		if len(s.records) != 1 || s.expiries.Len() != 1 {
			t.Errorf("%d records, %d of them expire; want one", len(s.records), s.expiries.Len())
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
			_, err := a.ForceRelease(t.Context(), name)
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
				first.expect(t, "reserved n 1")
				second.expect(t, "first n 2 1s")
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
				first.expect(t, "reserved n 1")
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
				second.expect(t, "reserved n 2")
			})
		})
	}
	queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		release(t, a, "n", "a:1")
		first.Close()
		second.expect(t, "first n 2 1s", "reserved n 2")
		second.Close()
		if len(s.records) != 0 || len(s.queues.lines) != 0 {
			t.Errorf("sessions that closed left %d records and %d queues", len(s.records), len(s.queues.lines))
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
		w.expect(t, "reserved n 1")
		told.expect(t, "released n")
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
		second.expect(t, "reserved n 2")
		first.expect(t, "first n 3 1s")
		second.leave(2)
		first.expect(t, "reserved n 3")
		first.leave(3)
		first.expect(t, "released n")
	})
}

func TestASessionThatYieldsGoesToTheEndOfTheQueue(t *testing.T) {
	queueing(t, time.Minute, func(t *testing.T, s *Store, a backend.Store, first, second *waiter) {
		release(t, a, "n", "a:1")
		first.enrol(1)
		first.wait(3)
		serve := func(owner string, yield bool) backend.ServeReply {
			q := backend.ServeRequest{Name: "n", Owner: owner, Next: "f:2", Lease: time.Minute, Yield: yield, Entry: 3}
			r, err := first.Capabilities().Queue.Serve(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		first.read()
		if r := serve(fmt.Sprintf("%p:1", first), true); !r.Held || r.Granted || !r.Enrolled {
			t.Errorf("Serve with another in the queue: %+v, want it released", r)
		}
		second.expect(t, "first n 2 1s", "reserved n 2")
		first.expect(t, "first n 3 1s")
		second.leave(2)
		if first.enrol(3); len(s.queues.lines) != 0 {
			t.Errorf("%d queues, want none", len(s.queues.lines))
		}
		if r := serve(fmt.Sprintf("%p:3", first), true); !r.Granted {
			t.Errorf("Serve with no other in the queue: %+v, want it granted", r)
		}
	})
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
		first.expect(t, "reserved n 1")
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
	out := s.records[outName("n")].out
	if len(out) != len(ids) {
		t.Fatalf("%d permits are in use, want %d", len(out), len(ids))
	}
	for id, p := range out {
		if !p.ends.Equal(out[ids[0]].ends) {
			t.Fatalf("permit %s ends %v after the first", id, p.ends.Sub(out[ids[0]].ends))
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
		first.expect(t, "changed all", "watching n")
		if r := first.enrol(1); !r.Granted {
			t.Errorf("Enrol of the first: %+v, want it granted", r)
		}
		first.wait(2)
		s.Flush()
		if r := acquire(t, a, "n", "a:1", lease); !r.Granted || len(s.queues.lines) != 0 {
			t.Errorf("Acquire after Flush: %+v, and %d queues; want it granted, and none", r, len(s.queues.lines))
		}
	})
}

// A record that ends without a release, and has no queue, leaves nothing about turns behind.
func TestARecordThatEndsWithoutAQueueLeavesNoTurn(t *testing.T) {
	const lease = 50 * time.Millisecond
	kept := func(t *testing.T, s *Store, extra, turns int) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.queues.extra) != extra || len(s.queues.turns) != turns {
			t.Errorf("extra entries: %v, turns: %v; want %d, %d", s.queues.extra, s.queues.turns, extra, turns)
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
				kept(t, s, 1, 0)
				end(s)
				kept(t, s, 0, 0)
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
				kept(t, s, 0, 1)
				end(s)
				kept(t, s, 0, 0)
			})
		})
	}
}

func TestALockIsReservedForASessionThatPollsForTwoOfItsPauses(t *testing.T) {
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
		second.expect(t, "first n 3 40ms")
		time.Sleep(2*polls - time.Millisecond)
		second.expect(t)
		if r := ask(); !r.Granted {
			t.Errorf("Enrol within two pauses: %+v, want it granted", r)
		}
		second.leave(3)
		second.wait(4)
		acquire(t, a, "n", "a:1", time.Minute) // refused
		release(t, b, "n", "b:1")
		second.expect(t, "reserved n 4")
		ask()
		second.wait(5)
		second.leave(4)
		time.Sleep(2 * polls)
		second.expect(t, "first n 5 40ms", "changed n", "reserved n 5")
		told.expect(t)
	})
}
