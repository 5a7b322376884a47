package clienttest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/semaphore"
)

// Findings U12: the names of a client with a prefix are other names to all other clients, of every kind.
func TestAPrefixIsOfEveryName(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		ctx := t.Context()
		told := make(map[string]int)
		c := open(WithPrefix("app:"), WithObserver(Observer{Acquired: func(e Event) { told[e.Name]++ }}))
		plain, same := open(), open(WithPrefix("app:"))
		fair := c.With(Fair())
		for kind, l := range map[string]Locker{"plain": c, "fair": fair, "read": c.RW().Read, "write": c.RW().Write} {
			lease := need(l.Lock(ctx, "x"))(t)
			if lease.Name() != "app:x" {
				t.Errorf("%s: the lease's name is %q", kind, lease.Name())
			}
			for other, want := range map[*Client]error{plain: nil, same: ErrNotAcquired} {
				other, wants := Locker(other), want
				if strings.Contains("read write", kind) {
					other = need(other.(*Client), nil)(t).RW().Write
				}
				got, err := other.TryLock(ctx, "x")
				if !errors.Is(err, wants) {
					t.Errorf("%s: TryLock of x by a client that it does not share with: %v, want %v", kind, err, wants)
				}
				got.Unlock(ctx)
			}
			info := need(plain.Inspect(ctx, "app:x"))(t)
			mine := need(c.Inspect(ctx, "x"))(t)
			if !info.Held || !mine.Held || mine.Name != "app:x" {
				t.Errorf("%s: Inspect says %+v to a client without the prefix, %+v to one with it", kind, info, mine)
			}
			again := need(l.Lock(lease.Context(), "x"))(t)
			must(t, again.Unlock(ctx))
			must(t, lease.Unlock(ctx))
		}
		all := need(c.LockAll(ctx, []string{"b", "a"}))(t)
		wants(t, errorOf(plain.TryLock(ctx, "app:a")), ErrNotAcquired)
		if all.Name() != "app:b + app:a" {
			t.Errorf("the name of LockAll's lease is %q", all.Name())
		}
		must(t, all.Unlock(ctx))

		must(t, errorOf(c.Lock(ctx, "gone")))
		if ok, err := c.ForceUnlock(ctx, "gone", ""); !ok || err != nil {
			t.Errorf("ForceUnlock: %v, %v", ok, err)
		}
		must(t, errorOf(c.RW().Read.Lock(ctx, "gone2")))
		if ok, err := c.ForceUnlock(ctx, "gone2", ""); !ok || err != nil {
			t.Errorf("ForceUnlock of a read-write lock: %v, %v", ok, err)
		}
		must(t, errorOf(semaphore.New(c, "s", 2).Acquire(ctx, 1)))
		must(t, errorOf(semaphore.NewCounting(c, "cs").TrySetPermits(ctx, 1)))
		must(t, semaphore.NewCounting(c, "cs").Acquire(ctx, 1))
		must(t, errorOf(latch.New(c, "l").TrySet(ctx, 1)))
		if n := need(semaphore.New(plain, "app:s", 0).Available(ctx))(t); n != 1 {
			t.Errorf("%d permits are free under the full name, want 1", n)
		}
		if n := need(latch.New(plain, "app:l").Count(ctx))(t); n != 1 {
			t.Errorf("the latch's count is %d under the full name, want 1", n)
		}
		err := semaphore.NewCounting(c, "cs").TryAcquire(ctx, 1)
		wants(t, err, ErrNotAcquired)
		if !contains(err.Error(), `"app:cs"`) {
			t.Errorf("an error names the lock otherwise than the store: %v", err)
		}
		if told["app:x"] == 0 || told["app:s"] == 0 || told["x"] != 0 {
			t.Errorf("the observer was told of %v", told)
		}
		wants(t, errorOf(c.Lock(ctx, "")), ErrInvalidName)
		wants(t, errorOf(semaphore.New(c, "", 1).Acquire(ctx, 1)), ErrInvalidName)
	})
}

func TestQuorumHasOnePrefix(t *testing.T) {
	stores := []*memory.Store{memory.New(), memory.New(), memory.New()}
	var same, mixed []*Client
	for i, s := range stores {
		same = append(same, on(t, s, WithPrefix("app:"), quorum.WithRejoinDelay(0)))
		mixed = append(mixed, on(t, s, WithPrefix(strings.Repeat("a", i+1))))
	}
	wants(t, errorOf(quorum.New(mixed...)), ErrInvalid)
	lease := need(need(quorum.New(same...))(t).Lock(t.Context(), "x"))(t)
	wants(t, errorOf(on(t, stores[0]).TryLock(t.Context(), "app:x")), ErrNotAcquired)
	must(t, lease.Unlock(t.Context()))
}

func TestAnOptionThatMakesNoSenseIsRefused(t *testing.T) {
	for name, o := range map[string]ClientOption{
		"an empty prefix": WithPrefix(""), "a prefix with half a tag": WithPrefix("a{"), "a line break": WithPrefix("a\n"),
		"a long prefix": WithPrefix(strings.Repeat("x", 257)), "an empty name": WithName(""),
		"a wait of nothing": WithDefaults(WithWait(0)), "a hold of nothing": WithDefaults(WithMaxHold(0)),
		"a hold for ever": WithDefaults(WithMaxHold(MaxLease + 1)), "two ways to wait": WithDefaults(Fair(), Polling(1e9)),
	} {
		if _, err := New(memory.New(), o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	c := on(t, memory.New(), WithPrefix("{app}:"))
	must(t, thenUnlock(c.Lock(t.Context(), "any{thing}")))
}

// Findings U3: the client's defaults hold where a call says nothing.
func TestTheClientsDefaultsOfWaitAndHold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		ctx := t.Context()
		c := open(WithDefaults(WithWait(2*time.Second), WithMaxHold(time.Minute)))
		held := need(open().Lock(ctx, "x"))(t)
		takes := func(what string, want time.Duration, err func() error) {
			t.Helper()
			start := time.Now()
			wants(t, err(), ErrNotAcquired)
			if d := time.Since(start); d < want || d > want+time.Second {
				t.Errorf("%s waited for %v, want %v", what, d, want)
			}
		}
		takes("Lock", 2*time.Second, func() error { return errorOf(c.Lock(ctx, "x")) })
		takes("Lock with a wait of its own", 20*time.Second,
			func() error { return errorOf(c.Lock(ctx, "x", WithWait(20*time.Second))) })
		takes("TryLock", 0, func() error { return errorOf(c.TryLock(ctx, "x")) })
		takes("LockAll", 2*time.Second, func() error { return errorOf(c.LockAll(ctx, []string{"y", "x"})) })
		takes("TryLockAll", 0, func() error { return errorOf(c.TryLockAll(ctx, []string{"y", "x"})) })
		takes("a semaphore", 2*time.Second, func() error { return errorOf(semaphore.New(c, "s", 0).Acquire(ctx, 1)) })
		takes("a counting semaphore", 2*time.Second, func() error { return semaphore.NewCounting(c, "cs").Acquire(ctx, 1) })
		must(t, errorOf(latch.New(c, "l").TrySet(ctx, 1)))
		takes("a latch", 2*time.Second, func() error { return latch.New(c, "l").Wait(ctx) })
		must(t, held.Unlock(ctx))

		lasts := func(what string, want time.Duration, l interface {
			Context() context.Context
			Err() error
		}) {
			t.Helper()
			start := time.Now()
			<-l.Context().Done()
			if d := time.Since(start); d < want-want/50 || d > want+time.Second { // a lease has a margin
				t.Errorf("%s lasted for %v, want %v", what, d, want)
			}
			wants(t, l.Err(), ErrLost)
		}
		lasts("Lock", time.Minute, need(c.Lock(ctx, "x"))(t))
		lasts("LockAll", time.Minute, need(c.LockAll(ctx, []string{"x", "y"}))(t))
		lasts("a permit", time.Minute, need(semaphore.New(c, "s2", 1).Acquire(ctx, 1))(t))
		lasts("WithLease", 5*time.Minute, need(c.Lock(ctx, "z", WithLease(5*time.Minute)))(t))
		lasts("WithMaxHold", 3*time.Minute, need(c.Lock(ctx, "w", WithMaxHold(3*time.Minute)))(t))
	})
}

// Findings F6: LockAll's try takes all or none, and waits for nothing.
func TestTryLockAll(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		ctx := t.Context()
		c, other := open(), open()
		fair := c.With(Fair())
		parts := Parts{}.And(c, "a", "b").And(fair, "c").And(c.RW().Read, "d")
		all := need(parts.TryLock(ctx))(t)
		for _, name := range []string{"a", "b", "c"} {
			wants(t, errorOf(other.TryLock(ctx, name)), ErrNotAcquired)
		}
		must(t, all.Unlock(ctx))
		for _, name := range []string{"a", "b", "c"} {
			held := need(other.Lock(ctx, name))(t)
			start := time.Now()
			_, err := parts.TryLock(ctx)
			wants(t, err, ErrNotAcquired)
			if e, is := errors.AsType[*Error](err); !is || e.Name != name || e.Op != "trylock" || e.Remaining <= 0 {
				t.Errorf("%s is held: %v", name, err)
			}
			if d := time.Since(start); d > 0 {
				t.Errorf("it waited for %v", d)
			}
			must(t, held.Unlock(ctx))
			must(t, thenUnlock(other.LockAll(ctx, []string{"a", "b", "c"})))
		}
		wants(t, errorOf(parts.TryLock(ctx, WithWait(time.Second))), ErrInvalid)
		wants(t, errorOf(Parts{}.TryLock(ctx)), ErrInvalid)
		wants(t, errorOf(parts.TryLock(nil)), ErrInvalid) //nolint:staticcheck // a nil context is the subject
		gone, cancel := context.WithCancel(ctx)
		cancel()
		wants(t, errorOf(parts.TryLock(gone)), context.Canceled)
	})
}

func TestTheZeroOptionsDoNothing(t *testing.T) {
	c := on(t, memory.New(), ClientOption{})
	must(t, thenUnlock(c.Lock(t.Context(), "x", Option{}, Option{})))
	must(t, thenUnlock(c.With(Option{}).TryLock(t.Context(), "x", Option{})))
	if WithWait(time.Second) != WithWait(time.Second) || Fair() == Fenced() || WithReplicas(1, 1) == WithReplicas(2, 1) {
		t.Error("options do not compare as their arguments do")
	}
}

// An option that does not apply is refused for each kind of lock.
func TestAnOptionThatDoesNotApplyIsRefused(t *testing.T) {
	c := on(t, memory.New())
	ctx := t.Context()
	kinds := []Option{Fair(), Fenced(), NonReentrant(), Polling(time.Second)}
	for _, o := range kinds {
		for _, l := range []Locker{c.RW().Read, c.RW().Write, c.RW(o).Read} {
			wants(t, errorOf(l.Lock(ctx, "x", o)), ErrInvalid)
			wants(t, errorOf(l.TryLock(ctx, "x", o)), ErrInvalid)
		}
		wants(t, errorOf(semaphore.New(c, "s", 1).TryAcquire(ctx, 1, o)), ErrInvalid)
		wants(t, semaphore.NewCounting(c, "c").Acquire(ctx, 1, o), ErrInvalid)
		wants(t, latch.New(c, "l").Wait(ctx, o), ErrInvalid)
	}
	wants(t, errorOf(c.TryLock(ctx, "x", WithWait(time.Second))), ErrInvalid)
	wants(t, errorOf(c.TryLock(ctx, "x", WithMaxWaiters(1))), ErrInvalid)
	clients := []*Client{c, on(t, memory.New()), on(t, memory.New())}
	for _, o := range append(kinds, WithReplicas(1, time.Second)) {
		wants(t, errorOf(need(quorum.New(clients...))(t).Lock(ctx, "x", o)), ErrInvalid)
	}
}

// What With was given wrongly is an error of each call, and of Check, which a start calls.
func TestWrongOptionsOfWithAreAnErrorOfTheCallAndOfCheck(t *testing.T) {
	for what, opts := range map[string][]Option{
		"a wait of nothing": {WithWait(0)}, "two bounds": {WithLease(time.Second), WithMaxHold(time.Second)},
		"two ways to wait": {Fair(), Polling(time.Second)}, "no fair locks": {Fair()},
	} {
		c := on(t, spyOn(memory.New(), "", nil))
		_, err := c.Check(t.Context())
		must(t, err)
		l := c.With(opts...)
		for range 2 {
			wants(t, errorOf(l.Lock(t.Context(), "x")), ErrInvalid)
			wants(t, errorOf(l.TryLock(t.Context(), "x")), ErrInvalid)
		}
		if _, err := c.Check(t.Context()); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: Check: %v", what, err)
		}
	}
}

// An option of a call counts before one of With, and this before one of WithDefaults.
func TestTheNearestOptionCounts(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		ctx := t.Context()
		c := open(WithDefaults(Polling(time.Minute), WithMaxHold(time.Hour)), WithDefaults(WithWait(3*time.Second)))
		waitsFor := func(holder Locker, what string, want time.Duration, l Locker, opts ...Option) {
			t.Helper()
			held := need(holder.Lock(ctx, "x"))(t)
			start := time.Now()
			wants(t, errorOf(l.Lock(ctx, "x", opts...)), ErrNotAcquired)
			if d := time.Since(start); d != want {
				t.Errorf("%s waited for %v, want %v", what, d, want)
			}
			wants(t, errorOf(l.TryLock(ctx, "x")), ErrNotAcquired) // WithWait of With and WithDefaults is not for it
			// The waiter's entry leaves in the background: a release would grant its owner.
			synctest.Wait()
			must(t, held.Unlock(ctx))
		}
		waits := func(what string, want time.Duration, l Locker, opts ...Option) {
			t.Helper()
			waitsFor(open(), what, want, l, opts...)
		}
		waits("the default", 3*time.Second, c)
		waits("With", 2*time.Second, c.With(WithWait(2*time.Second)))
		waits("the call", time.Second, c.With(WithWait(2*time.Second)), WithWait(time.Second))
		waitsFor(open().RW().Write, "a writer", 3*time.Second, c.RW().Write)
		waitsFor(open().RW().Write, "a writer with options", 2*time.Second, c.RW(WithWait(2*time.Second)).Write)

		lasts := func(what string, want time.Duration, l Locker, opts ...Option) {
			t.Helper()
			lease := need(l.Lock(ctx, "x", opts...))(t)
			start := time.Now()
			<-lease.Context().Done()
			if d := time.Since(start); d > want || d < want-want/10 {
				t.Errorf("%s: the lease lasted for %v, want %v", what, d, want)
			}
			wants(t, lease.Unlock(ctx), ErrLost)
		}
		lasts("the default", time.Hour, c)
		lasts("With", time.Minute, c.With(WithLease(time.Minute)))
		lasts("the call", 2*time.Minute, c.With(WithLease(time.Minute)), WithMaxHold(2*time.Minute))

		l := need(c.With(Fair()).Lock(ctx, "x", Fenced()))(t) // Fair comes before the default Polling
		if l.Token() == 0 {
			t.Error("no token")
		}
		first, second := queued(ctx, c.With(Fair()), "x"), queued(ctx, c.With(Fair()), "x")
		must(t, l.Unlock(ctx))
		must(t, first.lease(t).Unlock(ctx))
		must(t, second.lease(t).Unlock(ctx))
	})
}
