package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/mortise-go/mortise"
)

// holders has the sampled holds of each lock that this process holds or waits for, so that a wait is linked to the
// holds that it waited for.
type holders map[lock]*sampled

// lock is what calls wait for each other for.
type lock struct{ client, name, kind string }

// sampled are holds of one lock.
type sampled struct {
	now     map[hold]trace.SpanContext // those that have not ended
	last    trace.SpanContext          // the one that ended last
	ended   time.Time
	waiting int // calls that wait for the lock now
}

// linksMost bounds the links of a wait: a lock may have thousands of readers.
const linksMost = 8

// asHolder marks a link from a wait to a hold.
var asHolder = []attribute.KeyValue{attribute.String("mortise.link", "holder")}

func lockOf(e mortise.Event) lock {
	kind := e.Kind
	switch kind { // these exclude each other
	case "read":
		kind = "write"
	case "fair":
		kind = "lock"
	}
	return lock{e.Client, e.Name, kind}
}

func (h holders) of(l lock) *sampled {
	s := h[l]
	if s == nil {
		s = new(sampled)
		h[l] = s
	}
	return s
}

// waits notes that a call begins to wait.
func (h holders) waits(e mortise.Event) { h.of(lockOf(e)).waiting++ }

// waited notes the end of a wait, and returns links to holds that the call waited for, as far as they are this
// process's and sampled: those that have not ended, and the one that ended last, if that was after the call. The event
// of an Unlock may come after that of the call that it was unlocked for.
func (h holders) waited(e mortise.Event) (links []trace.Link) {
	l := lockOf(e)
	s := h.of(l)
	s.waiting = max(s.waiting-1, 0)
	if s.last.IsValid() && time.Since(s.ended) <= e.Waited {
		links = append(links, trace.Link{SpanContext: s.last, Attributes: asHolder})
	}
	for _, x := range s.now {
		if len(links) == linksMost {
			break
		}
		links = append(links, trace.Link{SpanContext: x, Attributes: asHolder})
	}
	h.tidy(l, s)
	return links
}

// begin notes a hold.
func (h holders) begin(e mortise.Event, x trace.SpanContext) {
	if !x.IsSampled() {
		return
	}
	s := h.of(lockOf(e))
	if s.now == nil {
		s.now = make(map[hold]trace.SpanContext)
	}
	s.now[hold{e.Owner, e.Lease}] = x
}

// end notes the end of a hold.
func (h holders) end(e mortise.Event, x trace.SpanContext) {
	if !x.IsSampled() {
		return
	}
	l := lockOf(e)
	s := h.of(l)
	delete(s.now, hold{e.Owner, e.Lease})
	s.last, s.ended = x, time.Now()
	h.tidy(l, s)
}

// tidy forgets a lock that this process neither holds nor waits for.
func (h holders) tidy(l lock, s *sampled) {
	if len(s.now) == 0 && s.waiting == 0 {
		delete(h, l)
	}
}
