//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/examples/quickstart/internal/story"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	story.Watchdog = 4 * time.Second // a machine that is busy holds it up for a while
	if name := os.Getenv(victimOf); name != "" {
		if err := beVictim(context.Background(), os.Args[1:], name, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestQuickstartOnRedis(t *testing.T) {
	check.Long(t)
	for _, client := range []string{"go-redis", "rueidis"} {
		t.Run(client, func(t *testing.T) {
			s := redistest.Start(t)
			var out strings.Builder
			err := run(context.Background(), []string{"-redis", s.Addr(), "-client", client}, &out)
			if err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
			if n := strings.Count(out.String(), "\n        ok  "); n != 6 {
				t.Errorf("%d steps said ok, want 6\n%s", n, &out)
			}
			if keys := s.Must("KEYS", "*"); len(keys.([]any)) != 0 {
				t.Errorf("left behind: %v", keys)
			}
			t.Logf("\n%s", &out)
		})
	}
}
