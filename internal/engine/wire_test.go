package engine

import (
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// Scripts count a longer field of a read-write lock as damage, and keep no lock for a client for longer.
func TestTheScriptsTakeWhatTheEngineSends(t *testing.T) {
	if n := maxOwner + len(":write"); n > wire.OwnerLongest {
		t.Errorf("a writer's field has up to %d bytes, scripts take %d", n, wire.OwnerLongest)
	}
	if wire.EntryUntold != backend.Untold {
		t.Errorf("an entry is told after %v, want %v", wire.EntryUntold, backend.Untold)
	}
	if d := 2 * maxEnrolPolling; d > wire.PolledReservation {
		t.Errorf("a client that polls needs a reservation of %v, scripts give it %v at most", d, wire.PolledReservation)
	}
}
