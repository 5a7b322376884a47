package mortise

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// Findings U12: the names of a client with a prefix are other names to all other clients, of every kind.
func TestAPrefixIsOfEveryName(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		ctx := t.Context()
		told := make(map[string]int)
		c := open(WithPrefix("app:"), WithObserver(Observer{Acquired: func(e AcquiredEvent) { told[e.Name]++ }}))
		plain, same := open(), open(WithPrefix("app:"))
		fair := need(c.Locker(Fair()))(t)
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
		all := need(c.LockAll(ctx, "b", "a"))(t)
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
		if ok, err := c.RW().ForceUnlock(ctx, "gone2"); !ok || err != nil {
			t.Errorf("ForceUnlock of a read-write lock: %v, %v", ok, err)
		}
		must(t, errorOf(c.Semaphore("s", 2).Acquire(ctx, 1)))
		must(t, errorOf(c.CountingSemaphore("cs").TrySetPermits(ctx, 1)))
		must(t, c.CountingSemaphore("cs").Acquire(ctx, 1))
		must(t, errorOf(c.CountDownLatch("l").TrySet(ctx, 1)))
		if n := need(plain.Semaphore("app:s", 0).Available(ctx))(t); n != 1 {
			t.Errorf("%d permits are free under the full name, want 1", n)
		}
		if n := need(plain.CountDownLatch("app:l").Count(ctx))(t); n != 1 {
			t.Errorf("the latch's count is %d under the full name, want 1", n)
		}
		err := c.CountingSemaphore("cs").TryAcquire(ctx, 1)
		wants(t, err, ErrNotAcquired)
		if !contains(err.Error(), `"app:cs"`) {
			t.Errorf("an error names the lock otherwise than the store: %v", err)
		}
		if told["app:x"] == 0 || told["app:s"] == 0 || told["x"] != 0 {
			t.Errorf("the observer was told of %v", told)
		}
		wants(t, errorOf(c.Lock(ctx, "")), ErrInvalidName)
		wants(t, errorOf(c.Semaphore("", 1).Acquire(ctx, 1)), ErrInvalidName)
	})
}

func TestQuorumHasOnePrefix(t *testing.T) {
	stores := []*memory.Store{memory.New(), memory.New(), memory.New()}
	var same, mixed []*Client
	for i, s := range stores {
		same = append(same, on(t, s, WithPrefix("app:"), WithRejoinDelay(0)))
		mixed = append(mixed, on(t, s, WithPrefix(strings.Repeat("a", i+1))))
	}
	wants(t, errorOf(Quorum(mixed...)), ErrInvalid)
	lease := need(need(Quorum(same...))(t).Lock(t.Context(), "x"))(t)
	wants(t, errorOf(on(t, stores[0]).TryLock(t.Context(), "app:x")), ErrNotAcquired)
	must(t, lease.Unlock(t.Context()))
}

func TestAnOptionThatMakesNoSenseIsRefused(t *testing.T) {
	for name, o := range map[string]ClientOption{
		"an empty prefix": WithPrefix(""), "a prefix with half a tag": WithPrefix("a{"), "a line break": WithPrefix("a\n"),
		"a long prefix": WithPrefix(strings.Repeat("x", 257)), "an empty name": WithName(""),
		"a wait of nothing": WithDefaultWait(0), "a hold of nothing": WithDefaultMaxHold(0),
		"a hold for ever": WithDefaultMaxHold(MaxLease + 1),
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
		c := open(WithDefaultWait(2*time.Second), WithDefaultMaxHold(time.Minute))
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
		takes("LockAll", 2*time.Second, func() error { return errorOf(c.LockAll(ctx, "y", "x")) })
		takes("TryLockAll", 0, func() error { return errorOf(TryLockAll(ctx, Parts(c, "y", "x"))) })
		takes("a semaphore", 2*time.Second, func() error { return errorOf(c.Semaphore("s", 0).Acquire(ctx, 1)) })
		takes("a counting semaphore", 2*time.Second, func() error { return c.CountingSemaphore("cs").Acquire(ctx, 1) })
		must(t, errorOf(c.CountDownLatch("l").TrySet(ctx, 1)))
		takes("a latch", 2*time.Second, func() error { return c.CountDownLatch("l").Wait(ctx) })
		must(t, held.Unlock(ctx))

		lasts := func(what string, want time.Duration, l *Lease) {
			t.Helper()
			start := time.Now()
			<-l.Context().Done()
			if d := time.Since(start); d < want-want/50 || d > want+time.Second { // a lease has a margin
				t.Errorf("%s lasted for %v, want %v", what, d, want)
			}
			wants(t, l.Err(), ErrLost)
		}
		lasts("Lock", time.Minute, need(c.Lock(ctx, "x"))(t))
		lasts("LockAll", time.Minute, need(c.LockAll(ctx, "x", "y"))(t))
		lasts("a permit", time.Minute, need(c.Semaphore("s2", 1).Acquire(ctx, 1))(t).lease)
		lasts("WithLease", 5*time.Minute, need(c.Lock(ctx, "z", WithLease(5*time.Minute)))(t))
		lasts("WithMaxHold", 3*time.Minute, need(c.Lock(ctx, "w", WithMaxHold(3*time.Minute)))(t))
	})
}

// Findings F6: LockAll's try takes all or none, and waits for nothing.
func TestTryLockAll(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		ctx := t.Context()
		c, other := open(), open()
		fair := need(c.Locker(Fair()))(t)
		parts := append(Parts(c, "a", "b"), Part{fair, "c"}, Part{c.RW().Read, "d"})
		all := need(TryLockAll(ctx, parts))(t)
		for _, name := range []string{"a", "b", "c"} {
			wants(t, errorOf(other.TryLock(ctx, name)), ErrNotAcquired)
		}
		must(t, all.Unlock(ctx))
		for _, name := range []string{"a", "b", "c"} {
			held := need(other.Lock(ctx, name))(t)
			start := time.Now()
			_, err := TryLockAll(ctx, parts)
			wants(t, err, ErrNotAcquired)
			if e, is := errors.AsType[*Error](err); !is || e.Name != name || e.Op != "trylock" || e.Remaining <= 0 {
				t.Errorf("%s is held: %v", name, err)
			}
			if d := time.Since(start); d > 0 {
				t.Errorf("it waited for %v", d)
			}
			must(t, held.Unlock(ctx))
			must(t, thenUnlock(other.LockAll(ctx, "a", "b", "c")))
		}
		wants(t, errorOf(TryLockAll(ctx, parts, WithWait(time.Second))), ErrInvalid)
		wants(t, errorOf(TryLockAll(ctx, nil)), ErrInvalid)
		wants(t, errorOf(TryLockAll(nil, parts)), ErrInvalid) //nolint:staticcheck // a nil context is the subject
		gone, cancel := context.WithCancel(ctx)
		cancel()
		wants(t, errorOf(TryLockAll(gone, parts)), context.Canceled)
	})
}
