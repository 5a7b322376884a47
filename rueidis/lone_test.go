//go:build unix

package rueidis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	redis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/rueidis"
)

// A lone caller sends by itself, over a connection that it may leave. It is free at once though the server
// stands still, and what it asked for is released.
func TestALoneCallerLeavesAtOnceAndLeavesNothing(t *testing.T) {
	for what, opt := range map[string]redis.ClientOption{"caching": {}, "no caching": {DisableCache: true}} {
		t.Run(what, func(t *testing.T) {
			srv := redistest.Start(t)
			opt.InitAddress, opt.ClientName = []string{srv.Addr()}, "caller"
			locks := check.Value(mortise.New(rueidis.New(opt))).In(t)
			defer locks.Close()
			connections := func() int { return strings.Count(do(t, srv, "CLIENT", "LIST").(string), " name=caller ") }
			alone := func(n int) {
				t.Helper()
				for range n {
					lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
					check.NoError(t, lease.Unlock(t.Context()))
				}
			}
			alone(1)
			before := connections()
			ready := func() { // the connection is made in the background
				t.Helper()
				awaitThat(t, "a connection of a lone caller", func() bool {
					alone(40)
					return connections() > before
				})
			}
			locked, unlocked := time.Hour, time.Hour // the quickest, since the machine may be busy
			for range 3 {
				ready()
				ctx, cancel := context.WithCancel(t.Context())
				srv.Pause()
				lock := func() error { return check.Err(locks.Lock(ctx, "n")) }
				locked = min(locked, leaves(t, srv, cancel, lock))
				ready()
				lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
				ctx, cancel = context.WithCancel(t.Context())
				srv.Pause()
				unlocked = min(unlocked, leaves(t, srv, cancel, func() error { return lease.Unlock(ctx) }))
			}
			check.ErrorIf(t, max(locked, unlocked) > 5*time.Millisecond, "Lock returns after %v, Unlock after %v",
				locked, unlocked)
		})
	}
}

// leaves has a call begin while srv stands still, and its caller leave: it returns how soon the call returned.
func leaves(t *testing.T, srv *redistest.Server, cancel func(), call func() error) time.Duration {
	t.Helper()
	returned := make(chan error)
	go func() { returned <- call() }()
	select {
	case err := <-returned:
		t.Fatalf("the server stands still, and the call returns %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	left := time.Now()
	cancel()
	err := <-returned
	took := time.Since(left)
	check.ErrorIf(t, !errors.Is(err, context.Canceled), "the caller left, and the call returns %v", err)
	srv.Resume()
	awaitThat(t, "the lock is free", func() bool { return do(t, srv, "EXISTS", "n") == int64(0) })
	return took
}

func awaitThat(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		check.FatalIf(t, time.Now().After(end), "not in 20 s: %s", what)
	}
}
