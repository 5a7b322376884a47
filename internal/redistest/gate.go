//go:build unix

package redistest

import (
	"sync/atomic"
	"testing"
)

// Gate is a Relay that can be shut: connections are then broken and refused.
type Gate struct {
	*Relay
	shut atomic.Bool
}

// NewGate starts a gate in front of the server at upstream, until the end of the test.
func NewGate(t testing.TB, upstream string) *Gate {
	t.Helper()
	g := new(Gate)
	g.Relay = NewRelay(t, upstream, func(*Line) (up, down func()) {
		if g.shut.Load() {
			return func() {}, func() {}
		}
		return nil, nil
	})
	return g
}

// Down breaks all connections, and refuses new ones until Up.
func (g *Gate) Down() {
	g.shut.Store(true)
	g.Cut()
}

// Up accepts connections again.
func (g *Gate) Up() { g.shut.Store(false) }
