package memory_test

import (
	"testing"

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

func (bareSession) Capabilities() backend.Capabilities { return backend.Capabilities{} }

// A backend without capabilities passes the suite.
func TestConformanceWithoutCapabilities(t *testing.T) {
	t.Run("bare", func(t *testing.T) {
		backendtest.Run(t, func(*testing.T) backendtest.Store { return bare{store{memory.New()}} })
	})
}
