package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// RunClosed checks that a wait and a Shutdown end soon after the Redis client of b was closed, by closing: a closed
// client stays closed. Other is a backend with a client of its own.
func RunClosed(t *testing.T, b, other backend.Backend, closing func()) {
	waits, failed := make(chan struct{}, 1), make(chan error, 1)
	locks := check.Value(mortise.New(b, mortise.WithObserver(mortise.Observer{
		Waiting: func(mortise.Event) { waits <- struct{}{} },
	}))).In(t)
	holder := check.Value(mortise.New(other)).In(t)
	defer holder.Close()
	held := check.Value(holder.Lock(t.Context(), t.Name())).In(t)
	mine := check.Value(locks.Lock(t.Context(), t.Name()+" mine")).In(t)
	go func() { _, err := locks.Lock(t.Context(), t.Name()); failed <- err }()
	<-waits
	closing()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case err := <-failed:
		check.Is(t, "the error of the wait", err, mortise.ErrUnavailable)
	case <-ctx.Done():
		t.Error("the wait goes on though the Redis client is closed")
	}
	check.Is(t, "the error of Unlock", mine.Unlock(ctx), mortise.ErrUnavailable)
	check.Is(t, "the error of Shutdown", locks.Shutdown(ctx), mortise.ErrUnavailable) // owes the release of mine
	check.ErrorIf(t, ctx.Err() != nil, "Shutdown did not return in time")
	check.NoError(t, held.Unlock(t.Context()))
}
