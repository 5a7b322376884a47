//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/mortise-go/mortise/examples/internal/fleet/fleettest"
)

func TestMain(m *testing.M) { fleettest.Main(m, show) }

func TestLeader(t *testing.T) {
	fleettest.Run(t, show, func(t *testing.T, out string) {
		if n := strings.Count(out, " leads, its term is "); n < leaders {
			t.Errorf("%d leaders, want at least %d\n%s", n, leaders, out)
		}
		if n := strings.Count(out, " knows that "); n < leaders {
			t.Errorf("%d times a replica learnt which one leads\n%s", n, out)
		}
	})
}
