package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// journal is a Handler that writes down what it is told.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, s)
}

func (j *journal) Watching(t backend.Topic) { j.add("watching " + t.Name) }
func (j *journal) Released(t backend.Topic) { j.add("released " + t.Name) }
func (j *journal) Changed(t backend.Topic)  { j.add("changed " + t.Name) }
func (j *journal) ChangedAll()              { j.add("changed all") }

// read returns what was told since the last read, once all is quiet.
func (j *journal) read() []string {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := j.read(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func open(t *testing.T, s *Store) (backend.Store, *journal) {
	t.Helper()
	j := new(journal)
	x, err := s.Open(j)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x, j
}

func acquire(t *testing.T, x backend.Store, name, owner string, lease time.Duration) backend.AcquireReply {
	t.Helper()
	r, err := x.Acquire(t.Context(), backend.AcquireRequest{Name: name, Owner: owner, Lease: lease})
	if err != nil {
		t.Fatalf("Acquire(%s, %s): %v", name, owner, err)
	}
	return r
}

func topic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }

func TestARecordExpiresToTheMillisecondAndWatchersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		a, _ := open(t, s)
		b, told := open(t, s)
		b.Subscribe(topic("n"))
		told.expect(t, "watching n")
		acquire(t, a, "n", "a:1", 100*time.Millisecond)

		time.Sleep(99 * time.Millisecond)
		if r := acquire(t, b, "n", "b:1", time.Second); r.Granted || r.Remaining != time.Millisecond {
			t.Errorf("after 99 of 100 ms: %+v, want refused with 1ms remaining", r)
		}
		told.expect(t)
		time.Sleep(time.Millisecond)
		told.expect(t, "changed n")
		if r := acquire(t, b, "n", "b:1", time.Second); !r.Granted {
			t.Errorf("after 100 ms: %+v, want granted", r)
		}
	})
}

func TestRecordsExpireInTheOrderOfTheirDeadlinesWhateverHappenedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		x, told := open(t, s)
		for i := range 50 {
			acquire(t, x, fmt.Sprintf("n%02d", i), "a:1", time.Duration(100-i)*time.Millisecond)
		}
		for i := 0; i < 50; i += 2 { // every other one is put off, or released
			name := fmt.Sprintf("n%02d", i)
			if i%4 == 0 {
				x.Release(t.Context(), backend.ReleaseRequest{Name: name, Owner: "a:1"})
				continue
			}
			x.Renew(t.Context(), []backend.RenewRequest{{Name: name, Owner: "a:1", Lease: time.Second}},
				make([]backend.RenewResult, 1))
		}
		time.Sleep(200 * time.Millisecond)
		var want []string
		for i := 49; i >= 0; i -= 2 {
			want = append(want, fmt.Sprintf("changed n%02d", i))
		}
		told.expect(t, want...)
		time.Sleep(time.Second)
		if got := told.read(); len(got) != 12 {
			t.Errorf("%d renewed records expired, want 12: %q", len(got), got)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.names) != 0 || s.expiries.Len() != 0 || s.timer != nil {
			t.Errorf("left behind: %d names, %d in the heap, timer %v", len(s.names), s.expiries.Len(), s.timer)
		}
	})
}

func TestWhileDownNothingRunsAndNothingIsToldAndUpConfirmsEveryWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		x, told := open(t, s)
		acquire(t, x, "n", "a:1", 50*time.Millisecond)
		x.Subscribe(topic("n"))
		told.expect(t, "watching n")

		down := errors.New("pulled the plug")
		s.SetDown(down)
		_, err := x.Acquire(t.Context(), backend.AcquireRequest{Name: "m", Owner: "a:2", Lease: time.Second})
		if f := backend.FaultOf(err); !errors.Is(err, down) || f.MayHaveRun || !f.Temporary || f.Remedy == "" {
			t.Errorf("Acquire while down: %v (%+v)", err, f)
		}
		out := make([]backend.RenewResult, 1)
		x.Renew(t.Context(), []backend.RenewRequest{{Name: "n", Owner: "a:1", Lease: time.Second}}, out)
		if !errors.Is(out[0].Err, down) {
			t.Errorf("Renew while down: %+v", out[0])
		}
		x.Subscribe(topic("m"))
		time.Sleep(60 * time.Millisecond)
		told.expect(t)

		s.SetDown(nil)
		got := told.read()
		slices.Sort(got)
		if want := []string{"changed all", "changed n", "watching m", "watching n"}; !slices.Equal(got, want) {
			t.Errorf("told %q on coming up, want %q", got, want)
		}
		if r := acquire(t, x, "n", "b:1", time.Second); !r.Granted {
			t.Error("a lease that ran out while the store was down is still held")
		}
	})
}

func TestTheHolderIsToldWhenItsRecordGoesByOtherMeans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		x, told := open(t, s)
		other, _ := open(t, s)
		for how, remove := range map[string]func(){
			"delete":  func() { s.Delete("n") },
			"occupy":  func() { s.Occupy("n"); s.Delete("n") },
			"force":   func() { other.ForceRelease(t.Context(), backend.ForceRequest{Name: "n"}) },
			"expired": func() { time.Sleep(time.Second) },
		} {
			acquire(t, x, "n", "a:1", time.Second)
			remove()
			if got := told.read(); len(got) == 0 || got[0] != "changed n" {
				t.Errorf("%s: told %q", how, got)
			}
		}
		acquire(t, x, "n", "a:1", time.Second)
		s.Flush()
		told.expect(t, "changed all")
	})
}

func TestTokensRiseThroughReleaseFlushAClockSetBackAndForgetting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		x, _ := open(t, s)
		var last int64
		draw := func(when string) {
			t.Helper()
			r, err := x.Acquire(t.Context(), backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: time.Second, Fenced: true})
			if err != nil || !r.Granted || r.Token <= last {
				t.Errorf("%s: %+v, %v; want a token above %d", when, r, err, last)
			}
			last = r.Token
			x.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "a:1"})
		}
		draw("first")
		if now := time.Now().UnixMilli(); last != now {
			t.Errorf("the first token is %d, want the clock's %d", last, now)
		}
		draw("after release") // the bubble's clock stands still: all this is within one ms
		s.Flush()
		draw("after flush")
		for i := range mostTokens + 1 {
			s.mu.Lock()
			s.tokens.next(fmt.Sprint(i))
			s.mu.Unlock()
		}
		draw("after it was forgotten")
		if n := len(s.tokens.last); n > mostTokens {
			t.Errorf("%d names are remembered", n)
		}
	})
}

func TestCloseLeavesNoGoroutineAndTheHandlerInPeace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		x, told := open(t, s)
		acquire(t, x, "n", "a:1", 50*time.Millisecond)
		for range 100 {
			x.Subscribe(topic("n"))
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
		told.read()
		s.Flush()
		s.Delete("n")
		time.Sleep(time.Second)
		told.expect(t)
		if err := x.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		x.Subscribe(topic("n"))
		if len(s.watchers) != 0 || len(s.sessions) != 0 {
			t.Errorf("left behind: %d watchers, %d sessions", len(s.watchers), len(s.sessions))
		}
	}) // synctest fails the test if a goroutine is left
}

func TestACancelledContextRunsNothing(t *testing.T) {
	s := New()
	x, _ := open(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := x.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: time.Second})
	if !errors.Is(err, context.Canceled) || backend.FaultOf(err).MayHaveRun {
		t.Errorf("Acquire under a cancelled context: %v", err)
	}
	if r, _ := x.Inspect(t.Context(), "n"); r.Held {
		t.Error("it took the lock")
	}
}

func TestAStoreOrHandlerThatIsMissingIsNamedByOpen(t *testing.T) {
	for _, s := range []*Store{nil, new(Store)} {
		if _, err := s.Open(new(journal)); err == nil {
			t.Error("Open on a Store that New did not make")
		}
	}
	if _, err := New().Open(nil); err == nil {
		t.Error("Open with a nil Handler")
	}
}

func TestServeOfAnOwnerWhoseLeaseIsOverGrantsNothingThatAnotherHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		a, _ := open(t, s)
		acquire(t, a, "n", "a:1", time.Second)
		q := backend.EnterRequest{Name: "n", Owner: "b:1", Lease: time.Minute, Under: "a:1", Holds: 1}
		if r, err := a.Capabilities().Delegation.Enter(t.Context(), q); err != nil || !r.Granted {
			t.Fatalf("Enter: %+v, %v", r, err)
		}
		time.Sleep(time.Second)
		serve := backend.ServeRequest{Name: "n", Owner: "a:1", Next: "a:2", Lease: time.Minute}
		if r, err := a.Capabilities().Queue.Serve(t.Context(), serve); err != nil || r.Granted {
			t.Errorf("Serve: %+v, %v; want nothing granted", r, err)
		}
		if r, _ := a.Inspect(t.Context(), "n"); r.Owner != "b:1" {
			t.Errorf("the record is %+v, want it held by b:1", r)
		}
	})
}

// In real time: a lease ends while the step goes on.
func TestAcquireAllAgainTakesAllLocksOrNoneAlsoWhenALeaseEndsMeanwhile(t *testing.T) {
	s := New()
	a, _ := open(t, s)
	in := []backend.AcquireRequest{{Name: "n", Owner: "a:1", Lease: 5 * time.Millisecond}}
	for i := range 4000 {
		in = append(in, backend.AcquireRequest{Name: fmt.Sprintf("free %d", i), Owner: "a:1", Lease: time.Minute})
	}
	b, err := s.Open(new(turns))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.Subscribe(topic("n"))
	acquire(t, a, "n", "a:1", in[0].Lease)
	wait := backend.EnrolRequest{Entry: 1}
	wait.Name, wait.Owner, wait.Lease = "n", "b:1", time.Minute
	if _, err := b.Capabilities().Queue.Enrol(t.Context(), wait); err != nil {
		t.Fatal(err)
	}
	out, err := a.Capabilities().Batch.AcquireAll(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range out {
		if r.Granted != out[0].Granted {
			t.Fatalf("%s: %+v, and %s: %+v", in[0].Name, out[0], in[i].Name, r)
		}
	}
}

func TestReleaseOfPermitsThatAreNotInUseNeedsNoCount(t *testing.T) {
	s := New()
	a, _ := open(t, s)
	semaphores, owner := a.Capabilities().Semaphores, fmt.Sprintf("%032x", 1)
	take := backend.PermitRequest{Name: "n", Owner: owner, Lease: time.Minute, Limit: 1}
	if r, err := semaphores.Acquire(t.Context(), take); err != nil || !r.Granted {
		t.Fatalf("Acquire: %+v, %v", r, err)
	}
	s.Occupy("n")
	q := backend.ReleaseRequest{Name: "n", Owner: fmt.Sprintf("%032x", 2)}
	if r, err := semaphores.Release(t.Context(), q); err != nil || r.Held {
		t.Errorf("Release of a permit that is not in use: %+v, %v; want it not held", r, err)
	}
	q.Owner = owner
	if r, err := semaphores.Release(t.Context(), q); !errors.Is(err, backend.ErrWrongKind) {
		t.Errorf("Release of a permit in use: %+v, %v; want ErrWrongKind", r, err)
	}
	q.Undo = true
	if r, err := semaphores.Release(t.Context(), q); !errors.Is(err, backend.ErrWrongKind) {
		t.Errorf("Undo where other data has the name: %+v, %v; want ErrWrongKind", r, err)
	}
}

func TestDeleteLeavesNoStateOfACountBehind(t *testing.T) {
	s := New()
	a, _ := open(t, s)
	q := backend.CountRequest{Topic: backend.Topic{Kind: backend.KindCountDownLatch, Name: "n"}, ID: "1", N: 1}
	if set, err := a.Capabilities().CountDownLatches.SetCount(t.Context(), q); err != nil || !set {
		t.Fatalf("SetCount: %v, %v", set, err)
	}
	if s.Delete("n"); len(s.names) != 0 {
		t.Errorf("the store still has %d names", len(s.names))
	}
}

func TestSessionsWatchAndCloseConcurrently(t *testing.T) {
	s := New()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			x, _ := s.Open(new(journal))
			owner := fmt.Sprintf("%d:1", i)
			for range 200 {
				x.Subscribe(topic("n"))
				x.Acquire(context.Background(), backend.AcquireRequest{Name: "n", Owner: owner, Lease: time.Millisecond})
				x.Release(context.Background(), backend.ReleaseRequest{Name: "n", Owner: owner})
				x.Unsubscribe(topic("n"))
			}
			x.Close()
		})
	}
	wg.Wait()
}
