//go:build unix

package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
)

// TestMain lets the test binary be a replica.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-redis" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func check(t *testing.T, redis, client string) {
	t.Helper()
	var out strings.Builder
	if err := run(context.Background(), redis, client, 0, &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if n := strings.Count(out.String(), " starts the tick of "); n != ticks {
		t.Errorf("%d ticks, want %d\n%s", n, ticks, &out)
	}
	if n := strings.Count(out.String(), " is killed"); n != replicas-1 {
		t.Errorf("%d replicas were killed, want %d\n%s", n, replicas-1, &out)
	}
	t.Logf("\n%s", &out)
}

func TestCronInMemory(t *testing.T) { check(t, "", "") }

func TestCronOnRedis(t *testing.T) {
	for _, client := range []string{"go-redis", "rueidis"} {
		t.Run(client, func(t *testing.T) { check(t, redistest.Start(t).Addr(), client) })
	}
}

func TestAnUnknownClientIsRefused(t *testing.T) {
	err := run(context.Background(), "127.0.0.1:1", "redigo", 0, nil)
	if err == nil || !strings.Contains(err.Error(), "rueidis") {
		t.Error(err)
	}
}
