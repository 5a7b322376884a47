package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/examples/quickstart/internal/story"
)

func TestQuickstartOnMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		start := time.Now()
		if err := story.Run(t.Context(), &out, inMemory()); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("took %v, more than 15 s", took)
		}
		if n := strings.Count(out.String(), "\n        ok  "); n != 6 {
			t.Errorf("%d steps said ok, want 6\n%s", n, &out)
		}
	})
}
