package cas_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/cas"
	"github.com/mortise-go/mortise/backend/cas/castest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

var background = context.Background()

// deaf is a handler of a session that waits for nothing.
type deaf struct{}

func (deaf) Watching(backend.Topic) {}
func (deaf) Released(backend.Topic) {}
func (deaf) Changed(backend.Topic)  {}
func (deaf) ChangedAll()            {}

// open opens a session, until the end of the test.
func open(t *testing.T, b backend.Backend) backend.Store {
	t.Helper()
	s, err := b.Open(deaf{})
	check.NoError(t, err)
	t.Cleanup(func() { check.NoError(t, s.Close()) })
	return s
}

func acquire(s backend.Store, name, owner string) (backend.AcquireReply, error) {
	return s.Acquire(background, backend.AcquireRequest{Name: name, Owner: owner, Lease: time.Minute})
}

func take(t *testing.T, s backend.Store, name, owner string) {
	t.Helper()
	if r, err := acquire(s, name, owner); err != nil || !r.Granted {
		t.Fatalf("Acquire(%s, %s): %+v, %v", name, owner, r, err)
	}
}

// counted is a driver that counts its calls, and holds them up until gate lets them pass.
type counted struct {
	cas.Driver
	batches, swaps atomic.Int32
	gate           chan struct{}
}

func (d *counted) Swap(ctx context.Context, in []cas.Swap, out []cas.Swapped) error {
	d.batches.Add(1)
	d.swaps.Add(int32(len(in)))
	if d.gate != nil {
		<-d.gate
	}
	return d.Driver.Swap(ctx, in, out)
}

func TestRequestsThatWaitGoOutAsOneSwapOfEachName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &counted{Driver: castest.NewMemory().Driver(), gate: make(chan struct{})}
		s := open(t, cas.New(func() (cas.Driver, error) { return d, nil }))
		rw := s.Capabilities().ReadWrite
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b"} { // both lanes are under way, for the first time
			wg.Go(func() { take(t, s, name, "x:1") })
			synctest.Wait()
		}
		check.Equal(t, "%d batches are under way", d.batches.Load(), 2)
		for i := range 64 {
			for name := range 3 {
				wg.Go(func() {
					r, err := rw.AcquireRead(background, backend.ReadRequest{
						Name: fmt.Sprint("rw", name), Owner: fmt.Sprint("r:", i), Lease: time.Minute,
					})
					check.ErrorIf(t, err != nil || !r.Granted, "AcquireRead: %+v, %v", r, err)
				})
			}
		}
		synctest.Wait()
		before, batches := d.swaps.Load(), d.batches.Load()
		close(d.gate)
		wg.Wait()
		n, b := d.swaps.Load()-before, d.batches.Load()-batches
		check.ErrorIf(t, n > 3*2+2, "192 readers of three names took %d swaps", n)
		check.ErrorIf(t, b > 4, "192 readers of three names took %d batches", b)
	})
}

// on is a session on a store whose writes are decided by a hook.
func on(t *testing.T, hook func(n int, q cas.Swap) castest.Fate) (*castest.Memory, backend.Store) {
	t.Helper()
	m := castest.NewMemory()
	s := open(t, m.Backend())
	take(t, s, "warm", "a:0")
	n := 0
	m.SetHook(func(q cas.Swap) castest.Fate {
		n++
		return hook(n, q)
	})
	return m, s
}

func TestAnUnknownOutcomeIsResolvedByReading(t *testing.T) {
	for what, fate := range map[string]castest.Fate{"done": castest.LostReply, "not done": castest.LostSwap} {
		t.Run(what, func(t *testing.T) {
			m, s := on(t, func(n int, _ cas.Swap) castest.Fate {
				if n == 1 {
					return fate
				}
				return castest.Carried
			})
			r, err := s.Acquire(background,
				backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: time.Minute, Fenced: true})
			check.ErrorIf(t, err != nil || !r.Granted || r.Token == 0, "Acquire: %+v, %v", r, err)
			again, err := s.Acquire(background, backend.AcquireRequest{Name: "n", Owner: "a:2", Lease: time.Minute})
			check.ErrorIf(t, err != nil || again.Granted, "another owner: %+v, %v", again, err)
			m.SetHook(nil)
			held, err := s.Release(background, backend.ReleaseRequest{Name: "n", Owner: "a:1"})
			check.ErrorIf(t, err != nil || !held.Held, "Release: %+v, %v", held, err)
		})
	}
}

// A value that a transaction of the store keeps is written later, and holds up no other name meanwhile.
func TestAKeptValueHoldsUpNoOtherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeps, tries := true, 0
		m := castest.NewMemory()
		s := open(t, m.Backend())
		take(t, s, "n", "a:1")
		m.SetHook(func(q cas.Swap) castest.Fate {
			if q.Key != "n" || !keeps || q.Owner == "a:1" {
				return castest.Carried
			}
			tries++
			return castest.Kept
		})
		released := make(chan error)
		go func() {
			r, err := s.Release(background, backend.ReleaseRequest{Name: "n", Owner: "a:1"})
			if err == nil && !r.Held {
				err = errors.New("not held")
			}
			released <- err
		}()
		for i := range 50 {
			began := time.Now()
			take(t, s, fmt.Sprint("other", i), "a:2")
			check.Equal(t, "another name took %v", time.Since(began), 0)
			time.Sleep(20 * time.Millisecond)
		}
		check.ErrorIf(t, tries < 10 || tries > 30, "in a second a kept value is tried %d times", tries)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, err := s.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "a:3", Lease: time.Minute})
		check.Is(t, "a request that is left", err, context.DeadlineExceeded)
		m.SetHook(nil)
		keeps = false
		check.NoError(t, <-released)
	})
}

// A release whose reply was lost is answered as it was carried out, not as a repetition would be.
func TestAReleaseWhoseReplyWasLostWasHeld(t *testing.T) {
	_, s := on(t, func(n int, _ cas.Swap) castest.Fate {
		if n == 2 {
			return castest.LostReply
		}
		return castest.Carried
	})
	take(t, s, "n", "a:1")
	r, err := s.Release(background, backend.ReleaseRequest{Name: "n", Owner: "a:1"})
	if err != nil && !backend.FaultOf(err).MayHaveRun {
		t.Errorf("Release: %v; it has run", err)
	}
	if err == nil && !r.Held {
		t.Error("Release: not held, though it was carried out")
	}
}

// late is a driver whose first write to a key comes late: it fails with an unknown outcome, and is carried out when
// release is called.
type late struct {
	cas.Driver
	mu      sync.Mutex
	key     string
	held    []cas.Swap
	failing bool
}

func (d *late) Swap(ctx context.Context, in []cas.Swap, out []cas.Swapped) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	unknown := &backend.Fault{Err: errors.New("no reply, for a test"), MayHaveRun: true, Temporary: true}
	for _, q := range in {
		if q.Key == d.key && q.Version != cas.Look && d.held == nil {
			d.held, d.failing = []cas.Swap{q}, true
			return unknown
		}
	}
	if d.failing {
		return unknown
	}
	return d.Driver.Swap(ctx, in, out)
}

func (d *late) release(t *testing.T) cas.Swapped {
	t.Helper()
	out := make([]cas.Swapped, 1)
	check.NoError(t, d.Driver.Swap(background, d.held, out))
	return out[0]
}

// What was undone must not come true later: the undoing writes, even where it finds nothing to undo.
func TestAWriteThatComesLateMeetsAnotherVersion(t *testing.T) {
	d := &late{Driver: castest.NewMemory().Driver(), key: "n"}
	s := open(t, cas.New(func() (cas.Driver, error) { return d, nil }))
	take(t, s, "warm", "a:0")
	_, err := acquire(s, "n", "a:1")
	check.ErrorIf(t, err == nil || !backend.FaultOf(err).MayHaveRun, "Acquire: %v, want an unknown outcome", err)
	d.mu.Lock()
	d.failing = false
	d.mu.Unlock()
	_, err = s.Release(background, backend.ReleaseRequest{Name: "n", Owner: "a:1", Undo: true})
	check.NoError(t, err)
	if r := d.release(t); r.Done {
		t.Error("the acquisition was carried out after it had been undone")
	}
	take(t, s, "n", "a:2")
}

func TestAValueOfANewerVersionIsLeftAlone(t *testing.T) {
	m := castest.NewMemory()
	c, err := mortise.New(m.Backend())
	check.NoError(t, err)
	t.Cleanup(func() { _ = c.Shutdown(background) })
	newer := append([]byte{0x82}, "what a newer version has written"...)
	m.Set("n", newer)
	_, err = c.TryLock(background, "n")
	if !errors.Is(err, mortise.ErrUnavailable) || !strings.Contains(err.Error(), "upgrade") {
		t.Errorf("TryLock: %v, want ErrUnavailable, and to upgrade", err)
	}
	out := make([]cas.Swapped, 1)
	check.NoError(t, m.Driver().Swap(background, []cas.Swap{{Key: "n", Version: cas.Look}}, out))
	check.Equal(t, "the value is %q", string(out[0].Value), string(newer))
}

func TestADamagedValueDoesNotConcernItsNeighbours(t *testing.T) {
	m := castest.NewMemory()
	s := open(t, m.Backend())
	m.Set("b", []byte("damaged"))
	in, out := make([]backend.RenewRequest, 3), make([]backend.RenewResult, 3)
	for i, name := range []string{"a", "b", "c"} {
		in[i] = backend.RenewRequest{Name: name, Owner: "x:1", Lease: time.Minute}
		if name != "b" {
			take(t, s, name, "x:1")
		}
	}
	s.Renew(background, in, out)
	for i, want := range []bool{true, false, true} {
		check.ErrorIf(t, out[i].Held != want || out[i].Err != nil, "%s: %+v", in[i].Name, out[i])
	}
}

// small is a driver with short values.
type small struct{ cas.Driver }

func (d small) Limits() cas.Limits { return cas.Limits{Value: 2000, Batch: 8, Lanes: 1} }

func TestAValueThatWouldBeTooLongIsRefusedBeforeTheStoreHasIt(t *testing.T) {
	s := open(t, cas.New(func() (cas.Driver, error) { return small{castest.NewMemory().Driver()}, nil }))
	rw := s.Capabilities().ReadWrite
	read := func(i int) error {
		_, err := rw.AcquireRead(background, backend.ReadRequest{Name: "n", Owner: fmt.Sprint("r:", i), Lease: time.Minute})
		return err
	}
	var err error
	readers := 0
	for ; err == nil && readers < 1000; readers++ {
		err = read(readers)
	}
	f := backend.FaultOf(err)
	if readers < 50 || readers == 1000 || f.Remedy == "" || f.MayHaveRun {
		t.Fatalf("after %d readers: %v (%+v), want a remedy", readers, err, f)
	}
	for i := range 2 { // the owner that comes is longer than one of them
		released, err := rw.ReleaseRead(background, backend.ReleaseRequest{Name: "n", Owner: fmt.Sprint("r:", i)})
		check.ErrorIf(t, err != nil || !released.Held, "ReleaseRead: %+v, %v", released, err)
	}
	check.NoError(t, read(2000))
}

func TestACallerThatLeavesHoldsUpNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &counted{Driver: castest.NewMemory().Driver(), gate: make(chan struct{})}
		s := open(t, cas.New(func() (cas.Driver, error) { return d, nil }))
		ctx, leave := context.WithCancel(background)
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := s.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: time.Minute})
			left <- err
		}()
		synctest.Wait() // it is under way
		go func() {
			_, err := s.Inspect(background, "n")
			stayed <- err
		}()
		waits, cancel := context.WithCancel(background)
		go func() {
			synctest.Wait()
			cancel()
		}()
		_, err := s.Inspect(waits, "n")
		check.ErrorIf(t, err == nil || backend.FaultOf(err).MayHaveRun,
			"a caller behind it: %v, want it not to have run", err)
		leave()
		err = <-left
		check.ErrorIf(t, err == nil || !backend.FaultOf(err).MayHaveRun, "Acquire: %v, want an unknown outcome", err)
		close(d.gate)
		check.NoError(t, <-stayed)
		r, err := s.Inspect(background, "n")
		check.ErrorIf(t, err != nil || r.Owner != "a:1", "the lock of the caller that left: %+v, %v", r, err)
	})
}

// A store's clock that is set forward ends no lease for clients that have seen the clock before, nor does one that is
// set back keep a lock from them longer than its lease.
func TestTheStoresClockIsSet(t *testing.T) {
	for what, ahead := range map[string]time.Duration{"forward": time.Hour, "back": -time.Hour} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := castest.NewMemory()
				a, b := open(t, m.Backend()), open(t, m.Backend())
				take(t, a, "n", "a:1")
				refused := func(when string) {
					t.Helper()
					r, err := acquire(b, "n", "b:1")
					check.FatalIf(t, err != nil || r.Granted, "%s: %+v, %v, want a refusal", when, r, err)
				}
				refused("at first")
				m.SetClock(ahead)
				began := time.Now()
				for time.Since(began) < 59*time.Second {
					refused(fmt.Sprint("after ", time.Since(began)))
					time.Sleep(time.Second)
				}
				time.Sleep(2 * time.Second)
				take(t, b, "n", "b:1")
			})
		})
	}
}

// A lease begins when it is written, however long the request was on its way.
func TestALeaseBeginsWhenItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := castest.NewMemory()
		d := &counted{Driver: m.Driver(), gate: make(chan struct{}, 8)}
		s, other := open(t, cas.New(func() (cas.Driver, error) { return d, nil })), open(t, m.Backend())
		d.gate <- struct{}{}
		d.gate <- struct{}{}
		take(t, s, "warm", "a:0")
		done := make(chan struct{})
		go func() {
			take(t, s, "n", "a:1")
			close(done)
		}()
		time.Sleep(4 * time.Second) // on its way
		d.gate <- struct{}{}
		<-done
		time.Sleep(59 * time.Second)
		r, err := acquire(other, "n", "b:1")
		check.ErrorIf(t, err != nil || r.Granted, "%+v, %v: the lease has a second left", r, err)
		time.Sleep(time.Second)
		take(t, other, "n", "b:1")
		close(d.gate)
	})
}

// silent is a handler of a session that waits, and does nothing about what it hears.
type silent struct {
	deaf
	watching chan backend.Topic
}

func (h silent) Watching(t backend.Topic)                 { h.watching <- t }
func (silent) Granted(backend.Topic, backend.Grant)       {}
func (silent) Reserved(backend.Topic, uint64)             {}
func (silent) First(backend.Topic, uint64, time.Duration) {}
func (silent) Wanted(backend.Topic, uint64)               {}
func (silent) Freed(backend.Topic)                        {}

// A session that does not come for its grant holds up those behind it for the first lease.
func TestASilentSessionsEntryCostsItsFirstLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := castest.NewMemory()
		holder := open(t, m.Backend())
		take(t, holder, "n", "h:1")
		h := silent{watching: make(chan backend.Topic, 1000)}
		s, err := m.Backend().Open(h)
		check.NoError(t, err)
		defer s.Close()
		s.Subscribe(backend.Topic{Kind: backend.KindLock, Name: "n"})
		<-h.watching
		q := backend.AcquireRequest{Name: "n", Owner: "s:1", Lease: time.Minute}
		r, err := s.Capabilities().Queue.Enrol(background, backend.EnrolRequest{AcquireRequest: q, Entry: 1})
		check.FatalIf(t, err != nil || !r.Enrolled, "Enrol: %+v, %v", r, err)
		live, err := mortise.New(m.Backend())
		check.NoError(t, err)
		served := make(chan time.Time, 1)
		go func() {
			l, err := live.Lock(background, "n", mortise.WithWait(time.Minute))
			served <- time.Now()
			check.NoError(t, err)
			check.NoError(t, l.Unlock(background))
		}()
		time.Sleep(time.Second)
		began := time.Now()
		_, err = holder.Release(background, backend.ReleaseRequest{Name: "n", Owner: "h:1"})
		check.NoError(t, err)
		if d := (<-served).Sub(began); d < backend.FirstLease || d > 2*backend.FirstLease {
			t.Errorf("the next client was served after %v", d)
		}
		check.NoError(t, live.Shutdown(background))
	})
}

// For the race detector.
func TestCloseBesideRequests(t *testing.T) {
	m := castest.NewMemory()
	for range 200 {
		s := open(t, m.Backend())
		var all sync.WaitGroup
		began := make(chan struct{}, 8)
		for i := range cap(began) {
			all.Go(func() {
				began <- struct{}{}
				_, _ = acquire(s, fmt.Sprint("n", i), "a:1")
			})
		}
		<-began
		check.NoError(t, s.Close())
		all.Wait()
	}
}

// A request that is under way when Close is called is answered.
func TestCloseWaitsForARequestThatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &counted{Driver: castest.NewMemory().Driver(), gate: make(chan struct{})}
		s := open(t, cas.New(func() (cas.Driver, error) { return d, nil }))
		var all sync.WaitGroup
		all.Go(func() { take(t, s, "n", "a:1") })
		synctest.Wait()
		all.Go(func() { check.NoError(t, s.Close()) })
		synctest.Wait()
		close(d.gate)
		all.Wait()
	})
}

// A value remembers a request until its session knows what it came to.
func TestABusyCountDoesNotCarryItsRequests(t *testing.T) {
	m := castest.NewMemory()
	s := open(t, m.Backend())
	sem := s.Capabilities().CountingSemaphores
	q := func(i int) backend.CountRequest {
		return backend.CountRequest{
			Topic: backend.Topic{Kind: backend.KindCountingSemaphore, Name: "n"}, ID: fmt.Sprint("q", i), N: 1,
		}
	}
	for i := range 1000 {
		n, err := sem.AddCount(background, q(i))
		check.FatalIf(t, err != nil || n != int64(i+1), "AddCount: %d, %v", n, err)
	}
	out := make([]cas.Swapped, 1)
	check.NoError(t, m.Driver().Swap(background, []cas.Swap{{Key: "n", Version: cas.Look}}, out))
	check.ErrorIf(t, len(out[0].Value) > 100, "after 1,000 requests the value has %d bytes", len(out[0].Value))
	for i := range 1000 {
		n, err := sem.AddCount(background, q(i))
		check.FatalIf(t, err != nil || n != 1000, "AddCount again: %d, %v", n, err)
	}
}

// granted is a handler of a session that waits, and notes its grants.
type granted struct {
	silent
	grants chan backend.Grant
}

func (h granted) Granted(_ backend.Topic, g backend.Grant) { h.grants <- g }

// A session's release that grants to its own waiter, and whose reply is lost: the lease began with the write, not when
// the session read that it was carried out.
func TestAGrantOfALostReplyCountsFromItsWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := castest.NewMemory()
		h := granted{silent{watching: make(chan backend.Topic, 1000)}, make(chan backend.Grant, 1)}
		d := slowLoss{m.Driver()}
		s, err := cas.New(func() (cas.Driver, error) { return d, nil }).Open(h)
		check.NoError(t, err)
		defer s.Close()
		take(t, s, "n", "a:1")
		s.Subscribe(backend.Topic{Kind: backend.KindLock, Name: "n"})
		<-h.watching
		q := backend.AcquireRequest{Name: "n", Owner: "a:2", Lease: time.Minute}
		r, err := s.Capabilities().Queue.Enrol(background, backend.EnrolRequest{AcquireRequest: q, Entry: 1})
		check.FatalIf(t, err != nil || !r.Enrolled, "Enrol: %+v, %v", r, err)
		lost := false
		m.SetHook(func(cas.Swap) castest.Fate {
			if lost {
				return castest.Carried
			}
			lost = true
			return castest.LostReply
		})
		began := time.Now()
		held, err := s.Release(background, backend.ReleaseRequest{Name: "n", Owner: "a:1"})
		check.ErrorIf(t, err != nil || !held.Held, "Release: %+v, %v", held, err)
		check.ErrorIf(t, time.Since(began) < 300*time.Millisecond, "it took %v", time.Since(began))
		g := <-h.grants
		check.ErrorIf(t, g.Owner != "a:2" || g.From.After(began), "the grant %+v began %v late", g, g.From.Sub(began))
	})
}

// slowLoss is a driver that takes a while to notice that a reply is lost.
type slowLoss struct{ cas.Driver }

func (d slowLoss) Swap(ctx context.Context, in []cas.Swap, out []cas.Swapped) error {
	err := d.Driver.Swap(ctx, in, out)
	if len(out) > 0 && out[0].Err != nil {
		<-time.After(300 * time.Millisecond)
	}
	return err
}
