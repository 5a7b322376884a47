package story

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
)

// handover: three want one lock.
func handover(ctx context.Context, s *scene) error {
	name := s.name("orders:42")
	clients, err := s.clients("alice", "bob", "carol")
	if err != nil {
		return err
	}
	lease, err := clients[0].Lock(ctx, name)
	if err != nil {
		return err
	}
	s.say("alice", "locks orders:42")

	var (
		inside, most atomic.Int32
		freed        atomic.Int64 // when it was last unlocked
		early        atomic.Bool
		wg           sync.WaitGroup
		failed       = make(chan error, 2)
	)
	inside.Store(1)
	for i, who := range []string{"bob", "carol"} {
		client := clients[i+1]
		wg.Go(func() {
			failed <- func() error {
				lease, err := client.Lock(ctx, name, mortise.WithWait(10*time.Second))
				if err != nil {
					return err
				}
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				at := freed.Load()
				early.CompareAndSwap(false, at == 0)
				s.say(who, "has it, %s after the unlock", ms(time.Duration(time.Now().UnixNano()-at)))
				sleep(lease.Context(), 200*time.Millisecond)
				s.say(who, "unlocks")
				inside.Add(-1)
				freed.Store(time.Now().UnixNano())
				return lease.Unlock(ctx)
			}()
		})
	}
	sleep(lease.Context(), 400*time.Millisecond)
	s.say("alice", "unlocks")
	inside.Add(-1)
	freed.Store(time.Now().UnixNano())
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	wg.Wait()
	if err := errors.Join(<-failed, <-failed); err != nil {
		return err
	}
	return s.claim(!early.Load() && most.Load() == 1,
		"at most %d held it at once, and the unlock woke the waiters", most.Load())
}

// reentry: a function that holds a lock calls one that locks it too.
func reentry(ctx context.Context, s *scene) error {
	name := s.name("orders:42")
	clients, err := s.clients("alice", "bob")
	if err != nil {
		return err
	}
	alice, bob := clients[0], clients[1]

	outer, err := alice.Lock(ctx, name)
	if err != nil {
		return err
	}
	s.say("alice", "locks orders:42")
	inner, err := alice.Lock(outer.Context(), name) // the lease's context: enters again
	if err != nil {
		return err
	}
	twice, err := bob.Inspect(ctx, name)
	if err != nil {
		return err
	}
	s.say("alice", "locks it again with her lease's context; the store counts %d holds", twice.Holds)
	_, another := alice.TryLock(ctx, name) // any other context: a competitor
	s.say("alice", "tries with a context that holds nothing: %s", outcome(another))
	if err := inner.Unlock(ctx); err != nil {
		return err
	}
	_, between := bob.TryLock(ctx, name)
	s.say("alice", "unlocks once; bob tries: %s", outcome(between))
	if err := outer.Unlock(ctx); err != nil {
		return err
	}
	// Not TryLock: what bob's client has cached may say "held" for a moment longer.
	lease, after := bob.Lock(ctx, name, mortise.WithWait(5*time.Second))
	s.say("alice", "unlocks again; bob locks: %s", outcome(after))
	if after == nil {
		if err := lease.Unlock(ctx); err != nil {
			return err
		}
	}
	return s.claim(twice.Holds == 2 && refused(another) && refused(between) && after == nil,
		"locked twice by its holder, free after the second Unlock")
}

// watchdog: work that takes longer than the lease.
func watchdog(ctx context.Context, s *scene) error {
	name := s.name("orders:42")
	var renewed atomic.Int32
	alice, err := s.client("alice", mortise.WithWatchdogTimeout(Watchdog), mortise.WithObserver(mortise.Observer{
		Renewed: func(e mortise.Event) {
			renewed.Add(1)
			s.say("alice", "the watchdog renews: %s to go", ms(e.Remaining))
		},
	}))
	if err != nil {
		return err
	}
	bob, err := s.client("bob")
	if err != nil {
		return err
	}
	lease, err := alice.Lock(ctx, name)
	if err != nil {
		return err
	}
	s.say("alice", "locks orders:42 for %s, and works for %s", ms(Watchdog), ms(2*Watchdog))
	sleep(lease.Context(), 2*Watchdog)
	alive := lease.Err()
	_, tried := bob.TryLock(ctx, name)
	s.say("bob", "tries: %s", outcome(tried))
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	s.say("alice", "unlocks")
	return s.claim(alive == nil && refused(tried) && renewed.Load() > 0,
		"held for twice its lease, renewed %d times on the way", renewed.Load())
}

// killed: a holder dies without a word.
func killed(ctx context.Context, s *scene) error {
	name := s.name("orders:42")
	clients, err := s.clients("bob")
	if err != nil {
		return err
	}
	bob := clients[0]
	victim, err := s.world.Victim(ctx, name)
	if err != nil {
		return err
	}
	s.say("victim", "%s; it locks orders:42 for %s and renews", victim.What, ms(Watchdog))
	before, err := bob.Inspect(ctx, name)
	if err != nil {
		return err
	}
	s.say("bob", "inspects the lock, held by %s", before.Owner)

	type result struct {
		lease *mortise.Lease
		err   error
		at    time.Time
	}
	got := make(chan result, 1)
	go func() {
		lease, err := bob.Lock(ctx, name, mortise.WithWait(Watchdog+10*time.Second))
		got <- result{lease, err, time.Now()}
	}()
	sleep(ctx, 300*time.Millisecond)
	if err := victim.Kill(); err != nil {
		return err
	}
	dead := time.Now()
	s.say("victim", "%s", victim.KillHow)
	left, err := bob.Inspect(ctx, name)
	if err != nil {
		return err
	}
	s.say("bob", "still waits: the dead holder's lease has %s to go", ms(left.Remaining))
	r := <-got
	if r.err != nil {
		return r.err
	}
	passed := r.at.Sub(dead)
	s.say("bob", "has it, %s after the death", ms(passed))
	if err := r.lease.Unlock(ctx); err != nil {
		return err
	}
	const tolerance = 20 * time.Millisecond // of clocks that are read at two places
	inTime := passed >= left.Remaining-tolerance && passed < Watchdog+8*time.Second
	return s.claim(left.Held && left.Owner == before.Owner && inTime,
		"freed when the lease ended, and not before, without help")
}

// lost: the lock is deleted under its holder.
func lost(ctx context.Context, s *scene) error {
	name := s.name("orders:42")
	clients, err := s.clients("alice", "bob")
	if err != nil {
		return err
	}
	alice, bob := clients[0], clients[1]
	lease, err := alice.Lock(ctx, name)
	if err != nil {
		return err
	}
	s.say("alice", "locks orders:42 and works under its lease's context")
	sleep(ctx, 100*time.Millisecond)
	if err := s.world.Delete(ctx, name); err != nil {
		return err
	}
	gone := time.Now()
	s.say("someone", "%s", s.world.DeleteHow)
	select {
	case <-lease.Context().Done():
	case <-time.After(Watchdog + 8*time.Second):
	}
	told := time.Since(gone)
	cause := context.Cause(lease.Context())
	s.say("alice", "her context ends %s later: lost=%t", ms(told), errors.Is(cause, mortise.ErrLost))

	next, err := bob.Lock(ctx, name, mortise.WithWait(5*time.Second))
	if err != nil {
		return err
	}
	s.say("bob", "locks orders:42")
	unlock := lease.Unlock(ctx)
	s.say("alice", "unlocks what she lost: %s", outcome(unlock))
	theirs := next.Err()
	if err := next.Unlock(ctx); err != nil {
		return fmt.Errorf("bob's lock was touched: %w", err)
	}
	return s.claim(errors.Is(cause, mortise.ErrLost) && errors.Is(unlock, mortise.ErrLost) && theirs == nil,
		"the work was told to stop, and a late Unlock touched no lock")
}

// ledger is a store that checks fencing tokens: the one line that a database needs.
type ledger struct{ highest int64 }

var errStale = errors.New("stale token")

func (l *ledger) write(token int64) error {
	if token < l.highest {
		return errStale
	}
	l.highest = token
	return nil
}

// fencing: a holder that was paused writes without looking at its lease.
func fencing(ctx context.Context, s *scene) error {
	name := s.name("account:7")
	clients, err := s.clients("alice", "bob")
	if err != nil {
		return err
	}
	alice := clients[0].With(mortise.Fenced())
	bob := clients[1].With(mortise.Fenced())
	var store ledger
	old, err := alice.Lock(ctx, name, mortise.WithLease(Watchdog))
	if err != nil {
		return err
	}
	first := old.Token()
	s.say("alice", "locks account:7 for %s, token ...%05d, and is paused (simulated)", ms(Watchdog), first%100000)
	lease, err := bob.Lock(ctx, name, mortise.WithWait(Watchdog+10*time.Second))
	if err != nil {
		return err
	}
	second := lease.Token()
	s.say("bob", "locks it when her lease is over, token ...%05d", second%100000)
	wrote := store.write(second)
	s.say("bob", "writes: %s", outcome(wrote))
	stale := store.write(first)
	s.say("alice", "wakes up and writes without looking: %s", outcome(stale))
	if err := lease.Unlock(ctx); err != nil {
		return err
	}
	return s.claim(second > first && wrote == nil && errors.Is(stale, errStale) && errors.Is(old.Err(), mortise.ErrLost),
		"the store that is written to refused her, whatever the clocks said")
}

func refused(err error) bool { return errors.Is(err, mortise.ErrNotAcquired) }

// outcome is an error in a word.
func outcome(err error) string {
	switch {
	case err == nil:
		return "done"
	case refused(err):
		return "refused, it is held"
	case errors.Is(err, errStale):
		return "refused, " + err.Error()
	case errors.Is(err, mortise.ErrLost):
		return "refused: lost"
	}
	return err.Error()
}
