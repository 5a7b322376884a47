package telemetry

import (
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/mortise-go/mortise"
)

// What is known of a lock goes with the last hold and the last wait, whichever is last.
func TestNothingIsKeptOfLocksThatAreNeitherHeldNorWaitedFor(t *testing.T) {
	sampled := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	})
	h := make(holders)
	e := mortise.Event{Name: "n", Kind: "lock", Owner: "a:1", Lease: 1}
	for range 2 {
		h.begin(e, sampled)
		h.waits(e)
		h.end(e, sampled)
		if len(h) != 1 {
			t.Fatalf("%d locks, want the one that is waited for", len(h))
		}
		h.waited(e)
		if len(h) != 0 {
			t.Fatalf("after the wait: %v", h)
		}
		h.waits(e)
		h.begin(e, sampled)
		h.waited(e)
		h.end(e, sampled)
		if len(h) != 0 {
			t.Fatalf("after the hold: %v", h)
		}
	}
	h.begin(e, sampled.WithTraceFlags(0))
	if len(h) != 0 {
		t.Errorf("a hold that is not sampled: %v", h)
	}
}
