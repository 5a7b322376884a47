package leader_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/slow"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/once"
)

const watchdog = 10 * time.Second

// fleet is processes that campaign for one leadership, in a synctest bubble.
type fleet struct {
	t     *testing.T
	store *memory.Store
	mu    sync.Mutex
	errs  []error
	terms []leader.Term
	leads int
}

func newFleet(t *testing.T) *fleet { return &fleet{t: t, store: memory.New()} }

func (f *fleet) client() *mortise.Client {
	c := check.Value(mortise.New(f.store, mortise.WithWatchdogTimeout(watchdog))).In(f.t)
	f.t.Cleanup(func() { c.Shutdown(ended()) })
	return c
}

// run has a process campaign until Run returns. Two that lead at once fail the test.
func (f *fleet) run(ctx context.Context, c mortise.Locker, identity string,
	fn func(context.Context, leader.Term) error) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- leader.Run(ctx, c, "n", func(ctx context.Context, term leader.Term) error {
			f.mu.Lock()
			f.terms = append(f.terms, term)
			if f.leads++; f.leads > 1 {
				f.t.Error("two lead at once")
			}
			f.mu.Unlock()
			defer func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.leads--
			}()
			return fn(ctx, term)
		}, leader.Identity(identity), leader.OnError(func(err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.errs = append(f.errs, err)
		}))
	}()
	return done
}

// led is which processes have led, in order.
func (f *fleet) led() (all []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, term := range f.terms {
		if all = append(all, term.Identity); i > 0 && term.Token <= f.terms[i-1].Token {
			f.t.Errorf("term %d follows term %d", term.Token, f.terms[i-1].Token)
		}
	}
	return all
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func untilDone(ctx context.Context, _ leader.Term) error { <-ctx.Done(); return ctx.Err() }

func TestWhatFollowsTheResultOfTheFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ctx, stop := context.WithCancel(t.Context())
		failed := errors.New("disk full")
		results := []error{fmt.Errorf("tired: %w", leader.StepDown), nil}
		a := f.run(ctx, f.client(), "a", func(context.Context, leader.Term) error {
			time.Sleep(time.Second)
			defer func() { results = results[1:] }()
			return results[0]
		})
		synctest.Wait()
		b := f.run(ctx, f.client(), "b", func(context.Context, leader.Term) error {
			time.Sleep(time.Second)
			return failed
		})
		synctest.Wait()
		c := f.run(ctx, f.client(), "c", untilDone)
		if err := <-b; !errors.Is(err, failed) {
			t.Errorf("b returned %v", err)
		}
		time.Sleep(time.Minute)
		if got := f.led(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("%v led, want a, b after a stepped down, then c before a", got)
		}
		select {
		case err := <-a:
			t.Errorf("a stepped down and does not campaign any more: %v", err)
		default:
		}
		stop()
		if err := <-c; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `lead "n"`) {
			t.Errorf("c returned %v", err)
		}
		<-a
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		done := f.run(t.Context(), f.client(), "a", func(context.Context, leader.Term) error { return nil })
		if err := <-done; err != nil {
			t.Errorf("a function that returned nil ended Run with %v", err)
		}
		if len(f.errs) > 0 {
			t.Errorf("told %v", f.errs)
		}
	})
}

func TestAFunctionThatStepsDownAtOnceIsCalledAfterPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		store := slow.Store{Store: f.store, Acquire: time.Millisecond}
		c := check.Value(mortise.New(store, mortise.WithWatchdogTimeout(watchdog))).In(t)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		<-f.run(ctx, c, "a", func(context.Context, leader.Term) error { return leader.StepDown })
		if n := len(f.led()); n < 10 || n > 50 {
			t.Errorf("%d terms in a minute", n)
		}
		check.NoError(t, c.Shutdown(t.Context()))
	})
}

func TestTheFunctionsErrorIsReturnedAfterAShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		c, failed := f.client(), errors.New("disk full")
		done := f.run(t.Context(), c, "a", func(ctx context.Context, _ leader.Term) error {
			<-ctx.Done()
			return failed
		})
		synctest.Wait()
		_ = c.Shutdown(ended())
		if err := <-done; !errors.Is(err, mortise.ErrClosed) || !errors.Is(err, failed) {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestALeaderThatLostTheLockCampaignsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ctx, stop := context.WithCancel(t.Context())
		wrote := errors.New("write: operation was canceled")
		done := f.run(ctx, f.client(), "a", func(ctx context.Context, term leader.Term) error {
			<-ctx.Done()
			if lost := term.Err(); !errors.Is(lost, mortise.ErrLost) && !errors.Is(context.Cause(ctx), context.Canceled) {
				t.Errorf("the context has ended by %v, and the term by %v", context.Cause(ctx), lost)
			}
			return wrote
		})
		time.Sleep(time.Second)
		f.store.Delete("n")
		time.Sleep(watchdog)
		if got := f.led(); !slices.Equal(got, []string{"a", "a"}) {
			t.Errorf("%v led, want two terms of a", got)
		}
		if len(f.errs) != 1 || !errors.Is(f.errs[0], mortise.ErrLost) || !errors.Is(f.errs[0], wrote) {
			t.Errorf("told %v, want the loss with the function's error", f.errs)
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, wrote) {
			t.Errorf("returned %v", err)
		}
	})
}

// deaf is a store that does not report changes, as go-redis's.
type deaf struct{ *memory.Store }

func (d deaf) Open(h backend.Handler) (backend.Store, error) { return d.Store.Open(inattentive{h}) }

type inattentive struct{ backend.Handler }

func (inattentive) Changed(backend.Topic) {}

// A leader whose record is gone may learn of that only at its release: what its function returned, perhaps because a
// later leader's token was larger, does not end the campaign.
func TestALossThatOnlyTheReleaseNoticesIsALoss(t *testing.T) {
	refused := errors.New("stale token")
	for _, result := range []error{nil, refused} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			c := check.Value(mortise.New(deaf{f.store}, mortise.WithWatchdogTimeout(watchdog))).In(t)
			done := f.run(ctx, c, "a", func(ctx context.Context, term leader.Term) error {
				if len(f.led()) > 1 {
					return untilDone(ctx, term)
				}
				f.store.Delete("n")
				return result
			})
			time.Sleep(time.Second) // with the pause before the next campaign
			if got := f.led(); !slices.Equal(got, []string{"a", "a"}) {
				t.Errorf("the function returned %v; %v led, want two terms of a", result, got)
			}
			if len(f.errs) != 1 || !errors.Is(f.errs[0], mortise.ErrLost) || result != nil && !errors.Is(f.errs[0], result) {
				t.Errorf("the function returned %v; told %v, want the loss with it", result, f.errs)
			}
			stop()
			check.Is(t, "Run", <-done, context.Canceled)
			check.NoError(t, c.Shutdown(t.Context()))
		})
	}
}

// A resignation waits for a store that hangs for five seconds at most, whether or not leadership was lost before.
func TestAResignationDoesNotWaitForAStoreThatHangs(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			hanging := slow.Store{Store: f.store, Release: time.Hour}
			c := check.Value(mortise.New(hanging, mortise.WithWatchdogTimeout(watchdog))).In(t)
			ctx, stop := context.WithCancel(t.Context())
			var over time.Time
			done := f.run(ctx, c, "a", func(ctx context.Context, _ leader.Term) error {
				if lost {
					f.store.Delete("n")
				} else {
					stop()
				}
				<-ctx.Done()
				stop()
				over = time.Now()
				return ctx.Err()
			})
			if err := <-done; !errors.Is(err, context.Canceled) || time.Since(over) > 6*time.Second {
				t.Errorf("lost %v: Run returned %v, %v after its function", lost, err, time.Since(over))
			}
			check.NoError(t, c.Shutdown(t.Context()))
		})
	}
}

// A leader cut off from the store loses leadership with its lease, and the next one leads within a
// second then.
func TestALeaderThatIsCutOffStopsBeforeTheNextOneLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		f.run(ctx, f.client(), "a", func(ctx context.Context, _ leader.Term) error {
			f.store.SetDown(errors.New("gone"))
			<-ctx.Done()
			return nil
		})
		synctest.Wait()
		f.run(ctx, f.client(), "b", untilDone)
		time.Sleep(watchdog + time.Second)
		f.store.SetDown(nil)
		time.Sleep(watchdog)
		got := f.led()
		if len(got) != 2 {
			t.Errorf("%v led, want a, and one of both", got)
		}
	})
}

func TestRunGoesOnWhileTheStoreIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ctx, stop := context.WithCancel(t.Context())
		f.store.SetDown(errors.New("gone"))
		done := f.run(ctx, f.client(), "a", untilDone)
		time.Sleep(time.Minute)
		f.store.SetDown(nil)
		time.Sleep(6 * time.Second)
		if got := f.led(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("%v led", got)
		}
		if n := len(f.errs); n < 10 || n > 40 || !errors.Is(f.errs[0], mortise.ErrUnavailable) {
			t.Errorf("%d errors in a minute: %v", n, f.errs)
		}
		stop()
		<-done
	})
}

func TestTheEndOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ctx, stop := context.WithCancelCause(t.Context())
		over := false
		done := f.run(ctx, f.client(), "a", func(ctx context.Context, _ leader.Term) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			over = true
			return ctx.Err()
		})
		synctest.Wait()
		next := f.run(t.Context(), f.client(), "b", func(context.Context, leader.Term) error { return nil })
		cause := errors.New("deployed")
		stop(cause)
		if err := <-done; !over || !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Errorf("returned %v before the function: %v", err, !over)
		}
		if err := <-next; err != nil { // resigned: it does not wait for the end of the lease
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		c := f.client()
		done := f.run(t.Context(), c, "a", untilDone)
		time.Sleep(time.Second)
		c.Shutdown(ended())
		if err := <-done; !errors.Is(err, mortise.ErrClosed) {
			t.Errorf("after Shutdown: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		func() {
			defer func() { recover() }()
			leader.Run(t.Context(), f.client(), "n", func(context.Context, leader.Term) error { panic("mine") })
		}()
		if l := check.Value(leader.Current(t.Context(), f.client(), "n")).In(t); l != (leader.Leader{}) {
			t.Errorf("after a panic %v leads", l)
		}
		lease, err := f.client().TryLock(t.Context(), "n")
		if err != nil {
			t.Error(err)
		}
		lease.Unlock(t.Context())
	})
}

func TestWhatWillNotPassIsReturned(t *testing.T) {
	client := check.Value(mortise.New(memory.New())).In(t)
	defer client.Close()
	ctx, name := t.Context(), func(s string) []leader.Option { return []leader.Option{leader.Identity(s)} }
	for what, c := range map[string]struct {
		client mortise.Locker
		name   string
		fn     func(context.Context, leader.Term) error
		opts   []leader.Option
		want   error
	}{
		"a nil function":      {client, "n", nil, nil, mortise.ErrInvalid},
		"a nil client":        {nil, "n", untilDone, nil, mortise.ErrInvalid},
		"a zero Client":       {new(mortise.Client), "n", untilDone, nil, mortise.ErrInvalid},
		"a bad name":          {client, "}", untilDone, nil, mortise.ErrInvalidName},
		"no identity":         {client, "n", untilDone, name(""), mortise.ErrInvalid},
		"a long identity":     {client, "n", untilDone, name(strings.Repeat("x", 257)), mortise.ErrInvalid},
		"a control character": {client, "n", untilDone, name("a\nb"), mortise.ErrInvalid},
		"Run within Run": {client, "n", func(ctx context.Context, _ leader.Term) error {
			return leader.Run(ctx, client, "n", untilDone)
		}, nil, mortise.ErrInvalid},
		"a nil option":  {client, "n", untilDone, []leader.Option{nil}, mortise.ErrInvalid},
		"a nil OnError": {client, "n", untilDone, []leader.Option{leader.OnError(nil)}, mortise.ErrInvalid},
	} {
		if err := leader.Run(ctx, c.client, c.name, c.fn, c.opts...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// follower is a process that follows which process leads.
type follower struct {
	t    *testing.T
	mu   sync.Mutex
	seen []string
	last leader.Leader
}

func (w *follower) follow(ctx context.Context, c *mortise.Client) {
	for l, err := range leader.Observe(ctx, c, "n") {
		w.mu.Lock()
		if err == nil {
			w.seen = append(w.seen, l.Identity)
			if l.Term > 0 && l.Term < w.last.Term {
				w.t.Errorf("%v follows %v", l, w.last)
			}
			w.last = l
		}
		w.mu.Unlock()
	}
}

// sees fails the test unless these were seen since it was called last.
func (w *follower) sees(what string, want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.seen, want) {
		w.t.Errorf("%s: seen %q, want %q", what, w.seen, want)
	}
	w.seen = nil
}

func TestFollowersSeeEachLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, w := newFleet(t), &follower{t: t}
		ctx, stop := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() { w.follow(ctx, f.client()) })
		w.sees("before an election", "")
		first, resign := context.WithCancel(ctx)
		a := f.run(first, f.client(), "a", untilDone)
		w.sees("elected", "a")
		time.Sleep(time.Hour)
		w.sees("an hour later")
		f.store.Delete("mortise:1:proclaim:{n}")
		time.Sleep(2 * time.Minute)
		w.sees("two minutes after its key was deleted", "", "a")
		resign()
		<-a
		w.sees("resigned", "")
		dying := f.client()
		go leader.Run(ctx, dying, "n", untilDone, leader.Identity("b"))
		w.sees("the next", "b")
		dying.Shutdown(ended()) // leaves the lock to run out, as a process that died
		synctest.Wait()
		time.Sleep(watchdog + 10*time.Millisecond)
		w.sees("died", "")
		f.store.SetDown(errors.New("gone"))
		time.Sleep(time.Minute)
		f.store.SetDown(nil)
		time.Sleep(2 * time.Second)
		c := f.run(ctx, f.client(), "c", untilDone)
		synctest.Wait()
		if w.last.Identity != "c" {
			t.Errorf("after an outage %v is seen", w.last)
		}
		stop()
		<-c
		following.Wait()
	})
}

// The costs that Client.Proclamations documents: while there is no leader, a command about each 5 s.
func TestAFollowerWithoutALeaderAsksEachFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := backendtest.NewFaults(memory.New())
		c := check.Value(mortise.New(store)).In(t)
		ctx, stop := context.WithCancel(t.Context())
		var loops sync.WaitGroup
		for range 3 {
			loops.Go(func() {
				for range leader.Observe(ctx, c, "n") {
				}
			})
		}
		time.Sleep(time.Second)
		began := store.Count(backendtest.OpProclaimed)
		time.Sleep(time.Minute)
		if n := store.Count(backendtest.OpProclaimed) - began; n < 11 || n > 16 {
			t.Errorf("%d commands in a minute without a leader, want one about each 5 s", n)
		}
		stop()
		loops.Wait()
		check.NoError(t, c.Shutdown(context.Background()))
	})
}

func TestFollowingStopsWithTheLoopAndAtWhatWillNotPass(t *testing.T) {
	client := check.Value(mortise.New(memory.New())).In(t)
	n := 0
	for _, err := range leader.Observe(t.Context(), nil, "n") {
		if n++; !errors.Is(err, mortise.ErrInvalid) {
			t.Error(err)
		}
	}
	for _, err := range leader.Observe(t.Context(), client, "}") {
		if n++; !errors.Is(err, mortise.ErrInvalidName) {
			t.Error(err)
		}
	}
	for range leader.Observe(t.Context(), client, "n") {
		n++
		break
	}
	for range leader.Observe(ended(), client, "n") {
		n++
	}
	if n != 3 {
		t.Errorf("%d rounds", n)
	}
	if _, err := leader.Current(t.Context(), nil, "n"); !errors.Is(err, mortise.ErrInvalid) {
		t.Errorf("of a nil client: %v", err)
	}
	if _, err := leader.Current(ended(), client, "n"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	client.Close()
	if _, err := leader.Current(t.Context(), client, "n"); !errors.Is(err, mortise.ErrClosed) {
		t.Error(err)
	}
}

// single is a Locker for tests of code that leads: it makes the process the leader at once.
type single struct {
	lose    context.CancelCauseFunc
	refused int
}

func (s *single) Lock(ctx context.Context, name string, _ ...mortise.Option) (*mortise.Lease, error) {
	if s.refused > 0 { // its wait was over
		s.refused--
		return nil, &mortise.Error{Op: "lock", Name: name, Err: mortise.ErrNotAcquired}
	}
	ctx, s.lose = context.WithCancelCause(ctx)
	return mortise.NewLease(ctx, name, 7, nil), nil
}

func (s *single) TryLock(ctx context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	return s.Lock(ctx, name, opts...)
}

func TestAMockIsEnough(t *testing.T) {
	s := single{refused: 2}
	terms := 0
	err := leader.Run(t.Context(), &s, "n", func(ctx context.Context, term leader.Term) error {
		if terms++; terms == 2 {
			return nil
		}
		if term.Token != 7 {
			t.Errorf("term %d", term.Token)
		}
		s.lose(mortise.ErrLost)
		<-ctx.Done()
		return ctx.Err()
	})
	if err != nil || terms != 2 {
		t.Errorf("%d terms, %v", terms, err)
	}
}

// plain is a backend without capabilities.
type plain struct{ backend.Backend }

type plainStore struct{ backend.Store }

func (plainStore) Capabilities() backend.Capabilities { return backend.Capabilities{} }

func (p plain) Open(h backend.Handler) (backend.Store, error) {
	s, err := p.Backend.Open(h)
	return plainStore{s}, err
}

func TestABackendThatKeepsNoTextsHasLeadersThatAreNotSeen(t *testing.T) {
	client := check.Value(mortise.New(plain{memory.New()})).In(t)
	defer client.Close()
	err := leader.Run(t.Context(), client, "n", func(ctx context.Context, term leader.Term) error {
		if _, err := leader.Current(ctx, client, "n"); !errors.Is(err, mortise.ErrInvalid) {
			t.Errorf("Current: %v", err)
		}
		return term.Err()
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAClientsPrefixIsOfLeadersAndTicksToo(t *testing.T) {
	store := memory.New()
	prefixed := check.Value(mortise.New(store, mortise.WithPrefix("p:"))).In(t)
	bare := check.Value(mortise.New(store)).In(t)
	defer prefixed.Close()
	defer bare.Close()
	err := leader.Run(t.Context(), prefixed, "n", func(ctx context.Context, _ leader.Term) error {
		for c, name := range map[*mortise.Client]string{prefixed: "n", bare: "p:n"} {
			if l, err := leader.Current(ctx, c, name); err != nil || l.Identity != "a" {
				t.Errorf("under %q: %v, %v", name, l, err)
			}
		}
		return nil
	}, leader.Identity("a"))
	if err != nil {
		t.Error(err)
	}
	if _, err := once.TryTick(t.Context(), prefixed, "n", once.TickRequest{ID: "1", Interval: time.Second}); err != nil {
		t.Error(err)
	}
	store.Occupy("mortise:1:tick:{p:n}")
	_, err = once.TryTick(t.Context(), prefixed, "n", once.TickRequest{ID: "1", Interval: time.Second})
	if !errors.Is(err, mortise.ErrWrongKind) {
		t.Errorf("a tick of another kind under the full name: %v", err)
	}
}

// askedStore counts what is asked for a lock.
type askedStore struct {
	*memory.Store
	n *atomic.Int64
}

func (b askedStore) Open(h backend.Handler) (backend.Store, error) {
	s, err := b.Store.Open(h)
	return askedSession{s, b.n}, err
}

type askedSession struct {
	backend.Store
	n *atomic.Int64
}

func (s askedSession) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	s.n.Add(1)
	return s.Store.Acquire(ctx, r)
}

func (s askedSession) Capabilities() backend.Capabilities {
	c := s.Store.Capabilities()
	c.Queue = askedQueue{c.Queue, s.n}
	return c
}

type askedQueue struct {
	backend.QueueStore
	n *atomic.Int64
}

func (q askedQueue) Enrol(ctx context.Context, r backend.EnrolRequest) (backend.EnrolReply, error) {
	q.n.Add(1)
	return q.QueueStore.Enrol(ctx, r)
}

func (q askedQueue) Leave(ctx context.Context, r backend.LeaveEntryRequest) error {
	q.n.Add(1)
	return q.QueueStore.Leave(ctx, r)
}

func TestACandidateOfAClientWithADefaultWaitIsOneWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := askedStore{memory.New(), new(atomic.Int64)}
		c, _ := mortise.New(st, mortise.WithDefaults(mortise.WithWait(10*time.Millisecond)))
		other, _ := mortise.New(st.Store)
		l, err := other.Lock(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = leader.Run(ctx, c, "n", func(context.Context, leader.Term) error { return nil }) // ctx ends
		if n := st.n.Load(); n > 100 {
			t.Errorf("%d commands in a minute, want those of one waiter", n)
		}
		l.Unlock(t.Context())
		c.Close()
		other.Close()
	})
}

// A function that returns the cause of its context names the loss itself.
func TestALossThatTheFunctionReturnsIsToldOnce(t *testing.T) {
	own := errors.New("disk full")
	for _, returns := range []func(cause error) error{
		func(cause error) error { return cause },
		func(cause error) error { return fmt.Errorf("flushing: %w; %w", own, cause) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			ctx, stop := context.WithCancel(t.Context())
			done := f.run(ctx, f.client(), "a", func(ctx context.Context, _ leader.Term) error {
				<-ctx.Done()
				return returns(context.Cause(ctx))
			})
			synctest.Wait()
			f.store.Delete("n")
			time.Sleep(time.Second)
			stop()
			<-done
			if len(f.errs) != 1 || !errors.Is(f.errs[0], mortise.ErrLost) ||
				strings.Count(f.errs[0].Error(), mortise.ErrLost.Error()) != 1 {
				t.Errorf("told %v, want the loss once", f.errs)
			} else if both := returns(mortise.ErrLost); errors.Is(both, own) && !errors.Is(f.errs[0], own) {
				t.Errorf("told %v, without the function's own error", f.errs)
			}
		})
	}
}

// An error that wraps the context's own beside another is not the context's own.
func TestTheFunctionsOwnErrorIsToldBesideTheContexts(t *testing.T) {
	own := errors.New("disk full")
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			ctx, stop := context.WithCancel(t.Context())
			done := f.run(ctx, f.client(), "a", func(ctx context.Context, _ leader.Term) error {
				<-ctx.Done()
				return fmt.Errorf("%w; flushing: %w", ctx.Err(), own)
			})
			synctest.Wait()
			if lost {
				f.store.Delete("n")
				synctest.Wait()
				time.Sleep(time.Second)
				if len(f.errs) != 1 || !errors.Is(f.errs[0], mortise.ErrLost) || !errors.Is(f.errs[0], own) {
					t.Errorf("OnError was told %v", f.errs)
				}
			}
			stop()
			if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, own) {
				t.Errorf("returned %v", err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		ctx, stop := context.WithCancel(t.Context())
		done := f.run(ctx, f.client(), "a", func(ctx context.Context, _ leader.Term) error {
			<-ctx.Done()
			return fmt.Errorf("scheduling: %w", ctx.Err())
		})
		synctest.Wait()
		next := f.run(ctx, f.client(), "b", untilDone)
		synctest.Wait()
		stop()
		for _, c := range []<-chan error{done, next} {
			if err := <-c; err == nil || err.Error() != `mortise: lead "n": context canceled` {
				t.Errorf("returned %v", err)
			}
		}
	})
}

// logged is what a logger has written since the last take.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// Without OnError nothing was said of an outage in which no process leads. The locks of the leader's function are its
// own matter.
func TestTheClientLogsAnOutageWithoutOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var log logged
		c := check.Value(mortise.New(store, mortise.WithWatchdogTimeout(watchdog),
			mortise.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))).In(t)
		defer c.Shutdown(ended())
		lines := func() (n int) {
			synctest.Wait()
			return strings.Count(log.take(), `"mortise: campaign for leadership failed, will be repeated" name=n `)
		}
		ctx, stop := context.WithCancel(t.Context())
		store.SetDown(errors.New("gone"))
		done, leads := make(chan error, 1), make(chan struct{}, 1)
		inner := make(chan error, 1)
		go func() {
			done <- leader.Run(ctx, c, "n", func(ctx context.Context, _ leader.Term) error {
				leads <- struct{}{}
				for ctx.Err() == nil {
					time.Sleep(time.Second)
					if _, err := c.TryLock(ctx, "m"); err != nil && ctx.Err() == nil {
						select {
						case inner <- err:
						default:
						}
					}
				}
				return ctx.Err()
			})
		}()
		time.Sleep(time.Minute)
		if n := lines(); n < 10 || n > 40 {
			t.Errorf("%d lines in a minute without a leader, want one each 5 s or a little more", n)
		}
		store.SetDown(nil)
		<-leads
		time.Sleep(time.Minute)
		if n := lines(); n > 0 {
			t.Errorf("%d lines while the process leads", n)
		}
		store.SetDown(errors.New("gone"))
		time.Sleep(watchdog / 2) // the function's own lock fails, and leadership lasts
		if n := lines(); n > 0 || len(inner) == 0 {
			t.Errorf("%d lines of a lock of the function, which failed %d times", n, len(inner))
		}
		time.Sleep(time.Minute)
		if n := lines(); n < 8 {
			t.Errorf("%d lines in an outage that ended leadership", n)
		}
		stop()
		check.Is(t, "Run", <-done, context.Canceled)
	})
}
