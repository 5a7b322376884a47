//go:build unix

// Package fleettest runs a show as its tests do: in memory, and as processes on a real Redis.
package fleettest

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mortise-go/mortise/examples/internal/fleet"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Main is TestMain: it lets the test binary be a replica.
func Main(m *testing.M, s fleet.Show) {
	if len(os.Args) > 1 && os.Args[1] == "-redis" {
		s.Main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Run runs a show everywhere, and checks what it wrote with passes.
func Run(t *testing.T, s fleet.Show, passes func(t *testing.T, out string)) {
	run := func(t *testing.T, redis, client string) {
		var out strings.Builder
		if err := s.Run(context.Background(), redis, client, 0, &out); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		passes(t, out.String())
		t.Logf("\n%s", &out)
	}
	t.Run("in memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { run(t, "", "") }) })
	for _, client := range []string{"go-redis", "rueidis"} {
		t.Run(client, func(t *testing.T) {
			check.Long(t)
			run(t, redistest.Start(t).Addr(), client)
		})
	}
	t.Run("an unknown client is refused", func(t *testing.T) {
		err := s.Run(context.Background(), "127.0.0.1:1", "redigo", 0, nil)
		if err == nil || !strings.Contains(err.Error(), "rueidis") {
			t.Error(err)
		}
	})
}
