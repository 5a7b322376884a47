package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/semaphore"
)

// An error names the operation and the lock once, whatever it wraps; errors.Is and errors.As find the same as before.
func TestErrorTextsNameOperationAndLockOnce(t *testing.T) {
	texts := make(map[string]string)
	add := func(what string, err error, targets ...error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
			return
		}
		for _, target := range targets {
			if !errors.Is(err, target) {
				t.Errorf("%s: %v is not %v", what, err, target)
			}
		}
		var e *Error
		if !errors.As(err, &e) || e.Op == "" {
			t.Errorf("%s: %v is no *Error", what, err)
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			if strings.Count(line, "mortise: ") != 1 || strings.Count(line, "not held: not held") > 0 {
				t.Errorf("%s: %q", what, line)
			}
		}
		texts[what] = err.Error()
	}
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, ctx := open(), t.Context()
		l := need(c.Lock(ctx, "a", WithLease(time.Second)))(t)
		time.Sleep(2 * time.Second)
		add("Unlock of a lease that ran out", l.Unlock(ctx), ErrLost)
		add("Unlock of it again", l.Unlock(ctx), ErrReleased)
		add("Lock under a lease that ran out", errorOf(c.Lock(l.Context(), "other")), ErrLost, context.Canceled)
		add("Proclaim of it", leader.Proclaim(ctx, l, "x"), ErrLost)

		removed := need(c.Lock(ctx, "a"))(t)
		s.Delete("a")
		add("re-entry after the removal", errorOf(c.Lock(removed.Context(), "a")), ErrLost)
		add("Unlock after the removal", removed.Unlock(ctx), ErrLost)

		twice := need(c.Lock(ctx, "b"))(t)
		must(t, twice.Unlock(ctx))
		add("a second Unlock", twice.Unlock(ctx), ErrReleased)

		fake, cancel := context.WithCancelCause(ctx)
		made := NewLease(fake, "fake", 0, nil)
		cancel(&Error{Op: "lease", Name: "fake", Err: fmt.Errorf("%w: gone", ErrLost)})
		add("Unlock of a lease of NewLease", made.Unlock(ctx), ErrLost)

		p := need(semaphore.New(c, "p", 1).Acquire(ctx, 1, WithLease(time.Second)))(t)
		time.Sleep(2 * time.Second)
		add("Release of a permit that ran out", p.Release(ctx), ErrLost)

		for _, n := range []int{1, 2} {
			s := semaphore.New(c, fmt.Sprint("p", n), n)
			in := need(s.Acquire(ctx, n))(t)
			add(fmt.Sprint("refusal of permits: ", n), errorOf(s.TryAcquire(ctx, n)), ErrNotAcquired)
			must(t, in.Release(ctx))
		}

		all := need(c.LockAll(ctx, []string{"x", "y"}))(t)
		s.Flush()
		add("Unlock of LockAll after a flush", all.Unlock(ctx), ErrLost)

		var clients []*Client
		var stores []*memory.Store
		for range 3 {
			stores = append(stores, memory.New())
			clients = append(clients, on(t, stores[len(stores)-1], quorum.WithRejoinDelay(0)))
		}
		q := need(quorum.New(clients...))(t)
		lost := need(q.Lock(ctx, "q", WithLease(time.Second)))(t)
		time.Sleep(2 * time.Second)
		add("the end of a lease of Quorum", lost.Err(), ErrLost)
		add("Unlock of a lease of Quorum that ran out", lost.Unlock(ctx), ErrLost)
		for _, s := range stores {
			s.SetDown(&backend.Fault{Err: errors.New("connection refused"), Temporary: true})
		}
		add("Quorum without stores", errorOf(q.TryLock(ctx, "q")), ErrUnavailable)
		add("LockAll with a part of Quorum", errorOf(Parts{}.And(c, "c").And(q, "q").Lock(ctx)), ErrUnavailable)
		s.SetDown(errors.New("connection refused"))
		add("Lock of a store that is down", errorOf(c.Lock(ctx, "a")), ErrUnavailable)
		add("Do", Do(ctx, c, "a", func(context.Context) error { return nil }), ErrUnavailable)
	})
	for what, want := range map[string]string{
		"Unlock of a lease that ran out":  `mortise: unlock "a": lock lost: its lease ran out`,
		"Lock under a lease that ran out": `mortise: lock "other": context canceled: lease "a": lock lost: its lease ran out`,
		"refusal of permits: 1": `mortise: tryacquire "p1": not acquired: no permit free for this call; ` +
			`the first permit in use ends in 30s unless renewed`,
		"refusal of permits: 2": `mortise: tryacquire "p2": not acquired: fewer than 2 permits free for this call; ` +
			`the first permit in use ends in 30s unless renewed`,
		"a second Unlock": `mortise: unlock "b": lock released: already unlocked; unlock each lease once`,
	} {
		if !strings.HasPrefix(texts[what], want) {
			t.Errorf("%s: %q does not begin with %q", what, texts[what], want)
		}
	}
}
