//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/mortise-go/mortise/examples/internal/fleet/fleettest"
)

func TestMain(m *testing.M) { fleettest.Main(m, show) }

func TestCron(t *testing.T) {
	fleettest.Run(t, show, func(t *testing.T, out string) {
		if n := strings.Count(out, " starts the tick of "); n != ticks {
			t.Errorf("%d ticks, want %d\n%s", n, ticks, out)
		}
		if n := strings.Count(out, " is killed"); n != replicas-1 {
			t.Errorf("%d replicas were killed, want %d\n%s", n, replicas-1, out)
		}
	})
}
