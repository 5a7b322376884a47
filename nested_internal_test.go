package mortise

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// What a client keeps of tenures that entered under another goes with them: names and owners are many.
func TestEnteringLeavesNothingInTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		open := func() *Client {
			c := on(t, store)
			t.Cleanup(func() { c.Close() })
			return c
		}
		a, b := open(), open()
		ctx := context.Background()
		for _, end := range []func(*Lease){
			func(l *Lease) { l.Unlock(ctx) },
			func(l *Lease) { time.Sleep(time.Minute) }, // its lease runs out
		} {
			outer := need(a.Lock(ctx, "n"))(t)
			called := need(b.WithDelegations(ctx, Delegations(outer.Context())...))(t)
			inner := need(b.Lock(called, "n", WithLease(time.Second)))(t)
			if _, err := b.Lock(called, "n", WithWait(time.Millisecond)); err == nil {
				t.Fatal("two callees are in")
			}
			end(inner)
			must(t, outer.Unlock(ctx))
			time.Sleep(2 * time.Second)
			for _, c := range []*Client{a, b} {
				if s := c.engine.Probe().Snapshot(); s.Nested+s.Names+s.Watches+s.Held != 0 {
					t.Errorf("left: %+v", s)
				}
			}
		}
	})
}
