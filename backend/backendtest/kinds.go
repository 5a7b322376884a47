package backendtest

import (
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

// pairingTests go through all pairs of kinds: a name that is in use as one kind, asked for
// as another. Either they exclude each other, or the answer is ErrWrongKind and nothing is
// changed. The one exception is in the table of docs/explanation/guarantees.md.
var pairingTests = []test{
	{"Rule01_EveryKindExcludesEveryOtherOrIsTheWrongOne", func(e *env) {
		holder, other := e.client(), e.client()
		next := pairKinds(e, e.client())
		for _, a := range pairKinds(e, holder) {
			for _, asking := range []*mortise.Client{other, holder} {
				for i, b := range pairKinds(e, asking) {
					whose := map[bool]string{true: "the same client", false: "another"}[asking == holder]
					name := fmt.Sprintf("%s-%d-%s", a.what, i, map[bool]string{true: "same", false: "other"}[asking == holder])
					a.pair(e, b, next[i], name, fmt.Sprintf("held as %s, asked for as %s by %s", a.what, b.what, whose))
				}
			}
		}
	}},
}

// How a kind keeps its record.
const (
	asLock = iota
	asReadWriteLock
	asCount
)

// pairKind is a kind of lock, and a client that asks for it.
type pairKind struct {
	what   string
	record int
	reads  bool
	// hold takes it, and returns how to give it back.
	hold func(name string) func()
	// ask asks for it in every way that there is, and returns what each came to. What is
	// granted is given back. It waits for wait, or longer.
	ask func(name string, wait time.Duration) map[string]error
	// state is what can be read of it.
	state func(name string) string
}

func pairKinds(e *env, c *mortise.Client) []pairKind {
	e.Helper()
	if !hasCounts(e) {
		e.lacks("latches and semaphores of both kinds")
	}
	e.fair()
	read, write := e.sides(c)
	lock := func(what string, record int, l mortise.Locker) pairKind {
		back := func(l *mortise.Lease, err error) error {
			if err == nil {
				e.unlock(l)
			}
			return err
		}
		return pairKind{
			what: what, record: record, reads: what == "read",
			hold: func(name string) func() {
				e.Helper()
				lease := e.lock(l, background, name, mortise.WithLease(long))
				return func() { e.Helper(); e.unlock(lease) }
			},
			ask: func(name string, wait time.Duration) map[string]error {
				return map[string]error{
					"trylock": back(l.TryLock(background, name, mortise.WithLease(long))),
					"lock": waiting(wait, func(w mortise.Option) error {
						return back(l.Lock(background, name, mortise.WithLease(long), w))
					}),
				}
			},
			state: func(name string) string {
				s, err := c.Inspect(background, name)
				e.errorIf(err == nil && s.Remaining < long-patience, "%s: what is left of the lease is %v", name, s.Remaining)
				s.Remaining = 0
				return fmt.Sprint(s, err)
			},
		}
	}
	count := func(what string, hold func(name string), read func(name string) (int, error),
		ask func(name string, wait time.Duration) map[string]error) pairKind {
		return pairKind{
			what: what, record: asCount, ask: ask,
			hold: func(name string) func() {
				e.Helper()
				hold(name)
				return func() { e.store.Delete(name) }
			},
			state: func(name string) string {
				n, err := read(name)
				return fmt.Sprint(n, err)
			},
		}
	}
	return []pairKind{
		lock("plain", asLock, c),
		lock("fair", asLock, e.kind(c, mortise.Fair())),
		lock("fenced", asLock, e.kind(c, mortise.Fenced())),
		lock("polling", asLock, e.kind(c, mortise.Polling(5*time.Millisecond))),
		lock("non-reentrant", asLock, e.kind(c, mortise.NonReentrant())),
		lock("read", asReadWriteLock, read),
		lock("write", asReadWriteLock, write),
		count("counting semaphore", func(name string) {
			e.Helper()
			e.ok(semaphore.NewCounting(c, name).TrySetPermits(background, 2))
			e.done("Acquire", semaphore.NewCounting(c, name).TryAcquire(background, 1))
		}, func(name string) (int, error) { return semaphore.NewCounting(c, name).Available(background) },
			func(name string, wait time.Duration) map[string]error {
				s := semaphore.NewCounting(c, name)
				return map[string]error{
					"available":  second(s.Available(background)),
					"setpermits": second(s.TrySetPermits(background, 9)),
					"tryacquire": s.TryAcquire(background, 1),
					"acquire":    waiting(wait, func(w mortise.Option) error { return s.Acquire(background, 1, w) }),
					"release":    s.Release(background, 1),
					"addpermits": s.AddPermits(background, 9),
					"drain":      second(s.Drain(background)),
				}
			}),
		count("semaphore", func(name string) {
			e.Helper()
			e.ok(semaphore.New(c, name, 0).TrySetPermits(background, 2))
			e.done("TryAcquire", second(semaphore.New(c, name, 0).TryAcquire(background, 1, mortise.WithLease(long))))
		}, func(name string) (int, error) { return semaphore.New(c, name, 0).Available(background) },
			func(name string, wait time.Duration) map[string]error {
				p := semaphore.New(c, name, 0)
				return map[string]error{
					"available":  second(p.Available(background)),
					"setpermits": second(p.TrySetPermits(background, 9)),
					"tryacquire": second(p.TryAcquire(background, 1)),
					"acquire":    waiting(wait, func(w mortise.Option) error { return second(p.Acquire(background, 1, w)) }),
					"addpermits": p.AddPermits(background, 9),
				}
			}),
		count("latch", func(name string) {
			e.Helper()
			e.ok(latch.New(c, name).TrySet(background, 1))
		}, func(name string) (int, error) {
			n, err := latch.New(c, name).Count(background)
			return int(n), err
		}, func(name string, wait time.Duration) map[string]error {
			l := latch.New(c, name)
			return map[string]error{
				"count":     second(l.Count(background)),
				"set":       second(l.TrySet(background, 9)),
				"countdown": l.CountDown(background),
				"wait":      waiting(wait, func(w mortise.Option) error { return l.Wait(background, w) }),
				"delete":    second(l.Delete(background)),
			}
		}),
	}
}

// waiting is a call that waits for d, or as much longer as it takes to get an answer.
func waiting(d time.Duration, call func(mortise.Option) error) error {
	for ; ; d *= 4 {
		if err := call(mortise.WithWait(d)); d > patience || !errors.Is(err, mortise.ErrUnavailable) {
			return err
		}
	}
}

// pair holds name as a, and asks for it as b; next is b by a third client.
func (a pairKind) pair(e *env, b, next pairKind, name, what string) {
	e.Helper()
	free := a.hold(name)
	before := a.state(name)
	switch {
	case a.record == asCount && b.record == asCount:
		// One integer, as in Redisson: nothing tells them apart. Both read the same.
		got := b.state(name)
		e.errorIf(got != before, "%s: it reads %s, want %s", what, got, before)
		free()
		return
	case a.record != b.record: // which is answered at once: nothing is on its way that could take it later
		for op, err := range b.ask(name, patience) {
			if err == nil {
				e.Errorf("%s: %s was carried out", what, op)
				continue
			}
			e.named(err, op, name, mortise.ErrWrongKind)
		}
	case a.reads && b.reads:
		for op, err := range b.ask(name, patience) {
			e.errorIf(err != nil, "%s: %s: %v, want it granted", what, op, err)
		}
	default:
		for op, err := range b.ask(name, 20*time.Millisecond) {
			e.errorIf(!errors.Is(err, mortise.ErrNotAcquired) || errors.Is(err, mortise.ErrWrongKind),
				"%s: %s: %v, want it refused", what, op, err)
		}
	}
	// A grant whose caller no longer waited is released in the background.
	after := a.state(name)
	for end := time.Now().Add(patience); after != before && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		after = a.state(name)
	}
	e.errorIf(after != before, "%s: it was %s and is %s", what, before, after)
	free()
	switch {
	case b.record == asCount:
	case a.record == b.record:
		e.until(what+": free for the next request", func() bool { return next.ask(name, patience)["trylock"] == nil })
	default:
		// Neither a place in a queue nor a writer's claim was left by what was refused.
		err := next.ask(name, patience)["trylock"]
		e.errorIf(err != nil, "%s: for the next request: %v", what, err)
	}
}
