package deploy_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// A slot moves while its locks are held, waited for, renewed, released and fought for: with all keys
// still at the old master, with some, with all at the new one, and after it. The lock
// that is held is renewed in each of these states but the second, in which Redis refuses
// commands about several keys of the slot; a release that is refused then goes on by itself.
func TestASlotMovesWhileItsLocksAreHeld(t *testing.T) {
	t.Parallel()
	const held, freed, turns = "{orders}:held", "{orders}:freed", "{orders}:turns"
	slot := redisproto.Slot(held)
	each(t, func(t *testing.T, s stack) {
		c := redistest.StartCluster(t, 3)
		at := clustered(c)
		var renewed, tried atomic.Int64
		count := mortise.WithObserver(mortise.Observer{
			Renewed: func(e mortise.RenewedEvent) {
				if e.Name == held {
					renewed.Add(1)
					tried.Add(1)
				}
			},
			RenewalFailed: func(e mortise.RenewalFailedEvent) {
				if e.Name == held {
					tried.Add(1)
				}
			},
		})
		// Renewed every four seconds.
		a, b := ready(t, s.open(t, at), count, mortise.WithWatchdogTimeout(12*time.Second)), ready(t, s.open(t, at))
		ctx := within(t, 4*patience)
		lease := harness.Must(lockUntilAvailable(ctx, a, held))(t)
		other := harness.Must(lockUntilAvailable(ctx, a, freed))(t)
		waits, next := waiting(b, ctx, held), waiting(b, ctx, freed)
		eventually(t, "both are waited for", func() bool { return listens(c, held) && listens(c, freed) })

		load := (&crew{t: t, opts: []mortise.Option{mortise.WithLease(time.Hour)}}).work(ctx, []string{turns}, a, b)
		renews := func(state string) {
			t.Helper()
			then := renewed.Load() // the next may have been sent before
			eventually(t, "renewed "+state, func() bool { return renewed.Load() > then+1 })
			harness.OKf(t, lease.Err(), "%s", state)
			still(t, waits)
		}

		load.progress()
		m := c.Migrate(slot, otherMaster(c, slot))
		renews("with all keys at the old master")
		m.MoveKey(held)
		then := tried.Load()
		eventually(t, "a renewal is tried with some keys at the old master, and some at the new one", func() bool { return tried.Load() > then })
		m.MoveKeys()
		renews("with all keys at the new master")
		if err := other.Unlock(ctx); err != nil && !unavailable(err) {
			t.Error(err)
		}
		m.Finish()
		ended(t, "who waited for what was released on the way", next)
		renews("at the new master")
		load.progress()
		load.end()
		harness.Check(t, lease.Unlock(ctx))
		ended(t, "who waited all the time", waits)
	})
}
