package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mortise-go/mortise"
)

// errorTests are about errors and bounded waits.
var errorTests = []test{
	{"Rule13_AStoreThatIsAwayIsNamedInBoundedTime", func(e *env) {
		c := e.client()
		lease := e.lock(c, background, "held", mortise.WithLease(long))
		lists := e.bare().Capabilities().List != nil
		e.store.Down()
		for op, run := range map[string]func() error{
			"lock":        func() error { _, err := c.Lock(background, "n"); return err },
			"trylock":     func() error { _, err := c.TryLock(background, "n"); return err },
			"inspect":     func() error { _, err := c.Inspect(background, "n"); return err },
			"forceunlock": func() error { _, err := c.ForceUnlock(background, "n", ""); return err },
			"locks": func() (err error) {
				for _, err = range c.Locks(background, "n") {
					e.errorIf(err == nil, "a lock is listed")
				}
				return err
			},
			"ping":   func() error { return c.Ping(background) },
			"check":  func() error { _, err := c.Check(background); return err },
			"unlock": func() error { return lease.Unlock(background) },
		} {
			if op == "locks" && !lists {
				continue
			}
			name := map[string]string{"ping": "", "check": "", "unlock": "held"}
			n, special := name[op]
			if !special {
				n = "n"
			}
			begin := time.Now()
			err := receive(e, op+" returns", async(run))
			e.named(err, op, n, mortise.ErrUnavailable)
			e.errorIf(err != nil && !strings.Contains(err.Error(), "("), "%s: no remedy in %q", op, err)
			e.tookAtMost(op+" failed only after %v", begin, 10*time.Second)
		}
	}},
	{"Rule13_ACheckOfAStoreThatServesFindsNoProblem", func(e *env) {
		c := e.client()
		var found []mortise.Finding
		e.until("the check is answered", func() bool { // on a busy machine a client library's time-outs may be over
			var err error
			found, err = c.Check(background)
			return err == nil
		})
		e.errorIf(len(found) == 0, "a check without findings")
		for _, f := range found {
			known := slices.Contains([]string{"ok", "warning", "unknown"}, f.State) // a problem would be an error
			e.errorIf(f.Name == "" || f.Text == "" || !known || (f.Remedy == "") != (f.State == "ok"), "%+v", f)
		}
	}},
	{"Rule13_AClientThatFoundTheStoreAwayWorksWhenItIsThere", func(e *env) {
		b := e.store.Backend()
		e.store.Down()
		c := e.clientOn(b)
		e.named(second(c.TryLock(background, "n")), "trylock", "n", mortise.ErrUnavailable)
		e.store.Up()
		e.until("it works", func() bool {
			lease, err := c.TryLock(background, "n")
			return err == nil && lease.Unlock(background) == nil
		})
	}},
	{"Rule13_DataOfAnotherKindIsNamedWithTheOperation", func(e *env) {
		c := e.client()
		e.store.Occupy("n")
		_, err := c.Lock(background, "n")
		e.named(err, "lock", "n", mortise.ErrWrongKind)
		e.errorIf(errors.Is(err, mortise.ErrUnavailable), "it is taken for a failure of the store: %v", err)
		e.named(second(c.TryLock(background, "n")), "trylock", "n", mortise.ErrWrongKind)
		e.named(second(c.Inspect(background, "n")), "inspect", "n", mortise.ErrWrongKind)
		e.named(second(c.ForceUnlock(background, "n", "")), "forceunlock", "n", mortise.ErrWrongKind)

		e.store.Delete("n")
		lease := e.lock(c, background, "n", mortise.WithLease(long))
		e.store.Occupy("n")
		if err := lease.Unlock(background); errors.Is(err, mortise.ErrLost) {
			e.named(err, "unlock", "n", mortise.ErrLost)
		} else {
			e.named(err, "unlock", "n", mortise.ErrWrongKind)
		}
	}},
	{"Rule13_AWaiterIsToldThatItsNameBecameAnotherKind", func(e *env) {
		holder, _ := e.session()
		holder.take("n", "a:1", 4*time.Second)
		c, f := e.tapped()
		waiting := locking(c, background, "n", mortise.WithWait(patience))
		e.settled(f)
		e.store.Occupy("n") // which announces nothing: it is found out at the lease's end
		e.named(receive(e, "Lock returns", waiting).err, "lock", "n", mortise.ErrWrongKind)
	}},
	{"Rule13_NonsenseIsRefusedWithoutACommand", func(e *env) {
		c, f := e.tapped()
		for _, name := range []string{"", "a}b", "{", "{}", "a{b", "\xff", strings.Repeat("x", 65537)} {
			e.is(fmt.Sprintf("Lock(%.20q)", name), second(c.Lock(background, name)), mortise.ErrInvalidName)
			e.is(fmt.Sprintf("TryLock(%.20q)", name), second(c.TryLock(background, name)), mortise.ErrInvalidName)
			e.is(fmt.Sprintf("Inspect(%.20q)", name), second(c.Inspect(background, name)), mortise.ErrInvalidName)
		}
		for _, opts := range [][]mortise.Option{
			{mortise.WithLease(0)}, {mortise.WithLease(-1)}, {mortise.WithLease(time.Millisecond)},
			{mortise.WithLease(mortise.MaxLease + 1)},
			{mortise.WithWait(-1)}, {mortise.WithWait(0)}, {mortise.WithMaxHold(0)},
			{mortise.Polling(0)}, {mortise.Polling(time.Hour)}, {mortise.Fair(), mortise.Polling(time.Second)},
			{mortise.WithLease(time.Second), mortise.WithMaxHold(time.Second)},
		} {
			e.is(fmt.Sprintf("Lock with %v", opts), second(c.Lock(background, "n", opts...)), mortise.ErrInvalid)
		}
		e.is("TryLock with WithWait", second(c.TryLock(background, "n", mortise.WithWait(time.Second))), mortise.ErrInvalid)
		e.is("Lock under a nil context", second(c.Lock(nil, "n")), mortise.ErrInvalid)
		var none *mortise.Lease
		e.is("Unlock of a nil lease", none.Unlock(background), mortise.ErrInvalid)
		e.errorIf(none.Err() == nil || none.Context().Err() == nil, "a nil lease holds")
		if n := f.Count(); n != 0 {
			e.Errorf("%d commands were sent: %+v", n, f.Calls())
		}
	}},
}
