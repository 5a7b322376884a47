package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/backend/memory"
)

// bare is a store of a backend that has the mandatory methods only.
type bare struct{ backendtest.Store }

func (s bare) Backend() backend.Backend { return bareBackend{s.Store.Backend()} }

type bareBackend struct{ backend.Backend }

func (b bareBackend) Open(h backend.Handler) (backend.Store, error) {
	s, err := b.Backend.Open(h)
	return bareSession{s}, err
}

type bareSession struct{ backend.Store }

// Acquire takes a moment, as a network does: without a queue the store is free for that long between two holders of a
// busy client, and only then can another client get the lock.
func (s bareSession) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	time.Sleep(50 * time.Microsecond)
	return s.Store.Acquire(ctx, r)
}

func (bareSession) Capabilities() backend.Capabilities { return backend.Capabilities{} }

// A backend without capabilities passes the suite.
func TestConformanceWithoutCapabilities(t *testing.T) {
	t.Run("bare", func(t *testing.T) {
		backendtest.RunInBubbles(t, func(*testing.T) backendtest.Store { return bare{store{memory.New()}} })
	})
}
