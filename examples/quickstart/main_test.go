package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/examples/quickstart/internal/story"
)

func TestQuickstartOnMemory(t *testing.T) {
	shown := story.Watchdog
	story.Watchdog = 4 * time.Second // a machine that is busy holds it up for a while
	defer func() { story.Watchdog = shown }()
	var out strings.Builder
	start := time.Now()
	err := story.Run(context.Background(), &out, inMemory())
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	more := 7 * (story.Watchdog - shown)
	if took := time.Since(start); took > 15*time.Second+more {
		t.Errorf("took %v, more than 15 s, and %v that the longer lease takes", took, more)
	}
	if n := strings.Count(out.String(), "\n        ok  "); n != 6 {
		t.Errorf("%d steps said ok, want 6\n%s", n, &out)
	}
}
