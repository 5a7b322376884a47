//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
)

// said is what the program says.
var said = regexp.MustCompile(`^Lock and Unlock: p50 [0-9.]+(ns|µs|ms|s), p99 [0-9.]+(ns|µs|ms|s)\n$`)

func check(t *testing.T, redis, client, kind string) {
	t.Helper()
	var out strings.Builder
	if err := run(&out, redis, client, kind, 20); err != nil {
		t.Fatal(err)
	}
	if !said.MatchString(out.String()) {
		t.Errorf("it says %q", &out)
	}
}

func TestLoneInMemory(t *testing.T) {
	for kind := range contexts {
		check(t, "", "go-redis", kind)
	}
}

func TestLoneOnRedis(t *testing.T) {
	s := redistest.Start(t)
	for client := range stores {
		for kind := range contexts {
			t.Run(client+" "+kind, func(t *testing.T) { check(t, s.Addr(), client, kind) })
		}
	}
	if keys := s.Must("KEYS", "*"); len(keys.([]any)) != 0 {
		t.Errorf("left behind: %v", keys)
	}
}

func TestFlagsThatMeanNothingAreRefused(t *testing.T) {
	for _, args := range [][2]string{{"redigo", "background"}, {"rueidis", "forever"}} {
		if err := run(nil, "127.0.0.1:1", args[0], args[1], 1); err == nil {
			t.Errorf("%q are taken", args)
		}
	}
}
