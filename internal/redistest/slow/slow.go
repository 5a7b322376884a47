// Package slow has a store in memory that takes its time.
package slow

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// Store takes Acquire for each request for a plain lock, and Release for each release of one.
type Store struct {
	*memory.Store
	Acquire, Release time.Duration
}

// Open opens a session that is as slow.
func (s Store) Open(h backend.Handler) (backend.Store, error) {
	opened, err := s.Store.Open(h)
	return session{opened, s}, err
}

type session struct {
	backend.Store
	slow Store
}

func (s session) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	time.Sleep(s.slow.Acquire)
	return s.Store.Acquire(ctx, r)
}

func (s session) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	time.Sleep(s.slow.Release)
	return s.Store.Release(ctx, r)
}
