package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

// seen is what a client reported.
type seen struct {
	*testing.T
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	traces *trace.TracerProvider
	store  *memory.Store
}

func open(t *testing.T, opts ...telemetry.Option) (*mortise.Client, *seen) {
	t.Helper()
	s := &seen{T: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder(), store: memory.New()}
	s.traces = trace.NewTracerProvider(trace.WithSpanProcessor(s.spans))
	meters := metric.NewMeterProvider(metric.WithReader(s.reader))
	observer := check.Value(telemetry.New(append([]telemetry.Option{
		telemetry.WithMeterProvider(meters), telemetry.WithTracerProvider(s.traces)}, opts...)...)).In(t)
	c := check.Value(mortise.New(s.store, mortise.WithObserver(observer))).In(t)
	t.Cleanup(func() { c.Close() })
	return c, s
}

// Findings U10: clients that share an observer are told apart by their names.
func TestMetricsNameTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seen{T: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder(), store: memory.New()}
		meters := metric.NewMeterProvider(metric.WithReader(s.reader))
		traces := trace.NewTracerProvider(trace.WithSpanProcessor(s.spans))
		observer := check.Value(telemetry.New(telemetry.WithMeterProvider(meters),
			telemetry.WithTracerProvider(traces))).In(t)
		for _, name := range []string{"orders", "tenants"} {
			c := check.Value(mortise.New(s.store, mortise.WithObserver(observer), mortise.WithName(name))).In(t)
			defer c.Close()
			lease := check.Value(c.Lock(t.Context(), name)).In(t)
			time.Sleep(15 * time.Second)
			check.Done(t, lease.Unlock(t.Context()))
		}
		var want []string
		for _, name := range []string{"orders", "tenants"} {
			want = append(want,
				"mortise.held{mortise.client="+name+",mortise.kind=lock} 0",
				"mortise.hold{mortise.client="+name+",mortise.kind=lock,mortise.outcome=released} 1 15",
				"mortise.lost{mortise.client="+name+",mortise.kind=lock,mortise.outcome=lost} 0",
				"mortise.renewal.failures{mortise.client="+name+",mortise.kind=lock} 0",
				"mortise.renewal{mortise.client="+name+",mortise.kind=lock} 1 0",
				"mortise.wait{mortise.client="+name+",mortise.kind=lock,mortise.outcome=acquired} 1 0")
		}
		s.expect(want...)
		for i, span := range s.spans.Ended() {
			name := []string{"orders", "tenants"}[i]
			check.ErrorIf(t, !slices.Contains(span.Attributes(), attribute.String("mortise.client", name)),
				"span %d has %v", i, span.Attributes())
		}
	})
}

// Each client may have an observer of its own: the gauge of the second one exists already.
func TestObserversOfOneMeterProviderReportTheirOldestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &seen{T: t, reader: metric.NewManualReader(), store: memory.New()}
		meters := metric.NewMeterProvider(metric.WithReader(s.reader))
		for _, name := range []string{"orders", "tenants"} {
			observer := check.Value(telemetry.New(telemetry.WithMeterProvider(meters))).In(t)
			c := check.Value(mortise.New(s.store, mortise.WithObserver(observer), mortise.WithName(name))).In(t)
			lease := check.Value(c.Lock(t.Context(), name)).In(t)
			defer c.Close()
			defer lease.Unlock(t.Context())
			time.Sleep(time.Second)
		}
		got := s.metrics()
		for _, want := range []string{
			"mortise.hold.oldest{mortise.client=orders,mortise.kind=lock} 2",
			"mortise.hold.oldest{mortise.client=tenants,mortise.kind=lock} 1",
		} {
			check.ErrorIf(t, !slices.Contains(got, want), "no %q in\n%s", want, strings.Join(got, "\n"))
		}
	})
}

// metrics are all values, as "name{attributes} value", histograms as "count sum".
func (s *seen) metrics() []string {
	s.Helper()
	var all metricdata.ResourceMetrics
	check.NoError(s, s.reader.Collect(context.Background(), &all))
	var out []string
	add := func(name string, set attribute.Set, format string, v ...any) {
		out = append(out, fmt.Sprintf("%s{%s} %s", name, set.Encoded(attribute.DefaultEncoder()), fmt.Sprintf(format, v...)))
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, "%d", p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, "%.0f", p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, "%d %.0f", p.Count, p.Sum)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

func (s *seen) expect(want ...string) {
	s.Helper()
	synctest.Wait()
	want = eachReason(want)
	slices.Sort(want)
	if got := s.metrics(); !slices.Equal(got, want) {
		s.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// With a sampled span in the caller's context, the histograms have exemplars: a slow wait leads to its trace.
func TestMeasurementsOfASampledCallHaveExemplars(t *testing.T) {
	reader := metric.NewManualReader()
	tracers := trace.NewTracerProvider()
	o := check.Value(telemetry.New(telemetry.WithTracerProvider(tracers),
		telemetry.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))).In(t)
	c := check.Value(mortise.New(memory.New(), mortise.WithObserver(o))).In(t)
	defer c.Close()
	ctx, span := tracers.Tracer("test").Start(t.Context(), "request")
	lease := check.Value(c.Lock(ctx, "n")).In(t)
	check.NoError(t, lease.Unlock(ctx))
	var got metricdata.ResourceMetrics
	check.NoError(t, reader.Collect(t.Context(), &got))
	id, seen := span.SpanContext().TraceID(), map[string]bool{}
	for _, m := range got.ScopeMetrics[0].Metrics {
		if h, is := m.Data.(metricdata.Histogram[float64]); is {
			for _, e := range h.DataPoints[0].Exemplars {
				seen[m.Name] = seen[m.Name] || string(e.TraceID) == string(id[:])
			}
		}
	}
	check.ErrorIf(t, !seen["mortise.wait"] || !seen["mortise.hold"], "exemplars of the request: %v", seen)
}

// eachReason has losses of no reason stand for those of each reason that is not there already.
func eachReason(all []string) (want []string) {
	for _, x := range all {
		of, zero := strings.CutSuffix(x, "mortise.outcome=lost} 0")
		if !zero {
			want = append(want, x)
			continue
		}
		for _, why := range []string{"late", "removed", "unanswered", "unlocked"} {
			y := of + "mortise.outcome=lost,mortise.reason=" + why + "}"
			if !slices.ContainsFunc(all, func(x string) bool { return strings.HasPrefix(x, y) }) {
				want = append(want, y+" 0")
			}
		}
	}
	return want
}

func TestWhatHappensToALockIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t)
		ctx := t.Context()
		lease := check.Value(c.Lock(ctx, "orders:1")).In(t)
		inner := check.Value(c.Lock(lease.Context(), "orders:1")).In(t)
		next := make(chan *mortise.Lease)
		go func() { l, _ := c.Lock(ctx, "orders:1", mortise.WithLease(2*time.Second)); next <- l }()
		time.Sleep(time.Second)
		s.expect(
			"mortise.held{mortise.kind=lock} 2",
			"mortise.hold.oldest{mortise.kind=lock} 1",
			"mortise.lost{mortise.kind=lock,mortise.outcome=lost} 0",
			"mortise.renewal.failures{mortise.kind=lock} 0",
			"mortise.wait{mortise.kind=lock,mortise.outcome=acquired} 2 0",
			"mortise.waiting{mortise.kind=lock} 1",
		)
		c.TryLock(ctx, "orders:1")
		time.Sleep(2 * time.Second)
		inner.Unlock(ctx)
		lease.Unlock(ctx)
		third := <-next
		time.Sleep(4 * time.Second)
		third.Unlock(ctx) // over before, as WithLease asked
		third.Unlock(ctx)
		fourth := check.Value(c.Lock(ctx, "orders:1")).In(t)
		s.store.Delete("orders:1")
		time.Sleep(time.Second)
		fourth.Unlock(ctx)
		s.expect(
			"mortise.handoffs{mortise.kind=lock} 1",
			"mortise.held{mortise.kind=lock} 0",
			"mortise.hold{mortise.kind=lock,mortise.outcome=expired} 1 2",
			"mortise.hold{mortise.kind=lock,mortise.outcome=lost} 1 0",
			"mortise.hold{mortise.kind=lock,mortise.outcome=released} 2 6",
			"mortise.lost{mortise.kind=lock,mortise.outcome=expired} 1",
			"mortise.lost{mortise.kind=lock,mortise.outcome=lost} 0",
			"mortise.lost{mortise.kind=lock,mortise.outcome=lost,mortise.reason=removed} 1",
			"mortise.renewal.failures{mortise.kind=lock} 0",
			"mortise.wait{mortise.kind=lock,mortise.outcome=acquired} 4 3",
			"mortise.wait{mortise.kind=lock,mortise.outcome=not_acquired} 1 0",
			"mortise.waiting{mortise.kind=lock} 0",
		)
	})
}

func TestEveryWaitEndsInAnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t)
		read, write := c.RW().Read, c.RW().Write
		r := check.Value(read.Lock(t.Context(), "n")).In(t)
		ctx, cancel := context.WithCancel(t.Context())
		go write.Lock(ctx, "n")
		go write.Lock(t.Context(), "n", mortise.WithWait(time.Second))
		go write.Lock(t.Context(), "n")
		synctest.Wait()
		write.Lock(t.Context(), "n", mortise.WithMaxWaiters(3))
		cancel()
		time.Sleep(25 * time.Second)
		down, over := context.WithCancel(context.Background())
		over()
		c.Shutdown(down)
		_ = r
		s.expect(
			"mortise.held{mortise.kind=read} 0",
			"mortise.hold{mortise.kind=read,mortise.outcome=closed} 1 25",
			"mortise.lost{mortise.kind=read,mortise.outcome=closed} 1",
			"mortise.lost{mortise.kind=read,mortise.outcome=lost} 0",
			"mortise.renewal.failures{mortise.kind=read} 0",
			"mortise.renewal{mortise.kind=read} 2 0",
			"mortise.wait{mortise.kind=read,mortise.outcome=acquired} 1 0",
			"mortise.wait{mortise.kind=write,mortise.outcome=cancelled} 1 0",
			"mortise.wait{mortise.kind=write,mortise.outcome=closed} 1 25",
			"mortise.wait{mortise.kind=write,mortise.outcome=crowded} 1 0",
			"mortise.wait{mortise.kind=write,mortise.outcome=not_acquired} 1 1",
			"mortise.waiting{mortise.kind=write} 0",
		)
	})
}

func TestNamesAreALabelOnlyWhereAskedForAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t, telemetry.WithNameAttribute(2,
			func(name string) string { label, _, _ := strings.Cut(name, ":"); return label }))
		for _, name := range []string{"orders:1", "orders:2", "users:1", "carts:1", "bills:1", "users:2"} {
			check.NoError(t, mortise.Do(t.Context(), c, name, func(context.Context) error { return nil }))
		}
		s.expect(
			"mortise.held{mortise.kind=lock,mortise.name=orders} 0",
			"mortise.held{mortise.kind=lock,mortise.name=other} 0",
			"mortise.held{mortise.kind=lock,mortise.name=users} 0",
			"mortise.hold{mortise.kind=lock,mortise.name=orders,mortise.outcome=released} 2 0",
			"mortise.hold{mortise.kind=lock,mortise.name=other,mortise.outcome=released} 2 0",
			"mortise.hold{mortise.kind=lock,mortise.name=users,mortise.outcome=released} 2 0",
			"mortise.lost{mortise.kind=lock,mortise.name=orders,mortise.outcome=lost} 0",
			"mortise.lost{mortise.kind=lock,mortise.name=other,mortise.outcome=lost} 0",
			"mortise.lost{mortise.kind=lock,mortise.name=users,mortise.outcome=lost} 0",
			"mortise.renewal.failures{mortise.kind=lock,mortise.name=orders} 0",
			"mortise.renewal.failures{mortise.kind=lock,mortise.name=other} 0",
			"mortise.renewal.failures{mortise.kind=lock,mortise.name=users} 0",
			"mortise.wait{mortise.kind=lock,mortise.name=orders,mortise.outcome=acquired} 2 0",
			"mortise.wait{mortise.kind=lock,mortise.name=other,mortise.outcome=acquired} 2 0",
			"mortise.wait{mortise.kind=lock,mortise.name=users,mortise.outcome=acquired} 2 0",
		)
	})
}

func TestAWaitAndAHoldAreLinkedSpansUnderTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := open(t)
		fenced := c.With(mortise.Fenced())
		first := check.Value(fenced.Lock(t.Context(), "n")).In(t)
		ctx, caller := s.traces.Tracer("").Start(t.Context(), "caller")
		done := make(chan error)
		go func() {
			done <- mortise.Do(ctx, fenced, "n", func(context.Context) error { time.Sleep(2 * time.Second); return nil })
		}()
		time.Sleep(3 * time.Second)
		first.Unlock(t.Context())
		check.NoError(t, <-done)
		caller.End()
		spans := s.spans.Ended()
		check.FatalIf(t, len(spans) != 4, "%d spans have ended, want two holds, a wait and the caller's", len(spans))
		wait := spans[slices.IndexFunc(spans, func(x trace.ReadOnlySpan) bool { return x.Name() == "mortise.wait" })]
		hold := spans[slices.IndexFunc(spans, func(x trace.ReadOnlySpan) bool {
			return x.Name() == "mortise.hold" && x.Parent().SpanID() == caller.SpanContext().SpanID()
		})]
		d := wait.EndTime().Sub(wait.StartTime())
		check.ErrorIf(t, d != 3*time.Second || wait.Parent().SpanID() != caller.SpanContext().SpanID(),
			"the wait took %v, under %v", d, wait.Parent().SpanID())
		check.Equal(t, "the hold took %v", hold.EndTime().Sub(hold.StartTime()), 2*time.Second)
		l := hold.Links()
		check.ErrorIf(t, len(l) != 1 || l[0].SpanContext.SpanID() != wait.SpanContext().SpanID(),
			"the hold's links are %v", l)
		if a := attribute.NewSet(hold.Attributes()...); a.Encoded(attribute.DefaultEncoder()) == "" ||
			!a.HasValue("mortise.token") || !a.HasValue("mortise.holds") {
			t.Errorf("the hold has %v", hold.Attributes())
		}
	})
}

func TestALossIsAnErrorOfItsSpanAndAnEndThatWasAskedForIsNone(t *testing.T) {
	for name, x := range map[string]struct {
		end  func(*memory.Store)
		want codes.Code
	}{
		"lost":    {func(s *memory.Store) { s.Delete("n") }, codes.Error},
		"expired": {func(*memory.Store) {}, codes.Unset},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := open(t)
				check.NoError(t, check.Err(c.Lock(t.Context(), "n", mortise.WithLease(time.Second))))
				x.end(s.store)
				time.Sleep(2 * time.Second)
				spans := s.spans.Ended()
				check.FatalIf(t, len(spans) != 1, "the spans are %v", spans)
				check.ErrorIf(t, spans[0].Status().Code != x.want ||
					spans[0].EndTime().Sub(spans[0].StartTime()) > time.Second, "the span is %v", spans[0])
			})
		})
	}
}

// spanTexts is all that spans say.
func spanTexts(spans []trace.ReadOnlySpan) string {
	var b strings.Builder
	for _, x := range spans {
		fmt.Fprintln(&b, x.Name(), x.Status().Description)
		for _, a := range x.Attributes() {
			fmt.Fprintln(&b, a.Key, a.Value.String())
		}
		for _, e := range x.Events() {
			fmt.Fprintln(&b, e.Name)
			for _, a := range e.Attributes {
				fmt.Fprintln(&b, a.Key, a.Value.String())
			}
		}
	}
	return b.String()
}

// Names of locks may say something about customers, and owners' ids have host names in them. They are
// in spans only where they are asked for; in the texts of errors, too.
func TestSpansSayNamesAndOwnersOnlyWhereAskedFor(t *testing.T) {
	label := func(name string) string { family, _, _ := strings.Cut(name, ":"); return family }
	for _, c := range []struct {
		what        string
		opts        []telemetry.Option
		family, all bool
	}{
		{"by default", nil, false, false},
		{"WithNameAttribute", []telemetry.Option{telemetry.WithNameAttribute(1, label)}, true, false},
		{"WithSpanDetails", []telemetry.Option{telemetry.WithSpanDetails()}, true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks, s := open(t, c.opts...)
				ctx := t.Context()
				lease := check.Value(locks.Lock(ctx, "customers:alice")).In(t)
				// A wait that is refused, one that fails, a hold that is lost, one that fails to be released.
				locks.Lock(ctx, "customers:alice", mortise.WithWait(time.Second))
				locks.Lock(ctx, "customers:}", mortise.WithWait(time.Second))
				lost := check.Value(locks.Lock(ctx, "customers:bob")).In(t)
				s.store.Delete("customers:bob")
				time.Sleep(2 * time.Second)
				lost.Unlock(ctx)
				s.store.SetDown(errors.New("customers:alice is away"))
				locks.Lock(ctx, "customers:carol", mortise.WithWait(time.Second))
				down, over := context.WithCancel(ctx)
				over()
				lease.Unlock(down)
				locks.Close()
				synctest.Wait()
				said := spanTexts(s.spans.Ended())
				for text, may := range map[string]bool{
					"customers": c.family, "customers:": c.all, "alice": c.all, "bob": c.all, "carol": c.all,
					locks.ID(): c.all, "mortise.owner": c.all, "exception": c.all,
				} {
					got := strings.Contains(said, text)
					check.ErrorIf(t, got != may, "%q is there: %v, want %v:\n%s", text, got, may, said)
				}
				check.ErrorIf(t, !strings.Contains(said, "mortise.outcome lost") ||
					!strings.Contains(said, "mortise.outcome unavailable"),
					"outcomes are missing:\n%s", said)
			})
		})
	}
}

func TestMistakesAreRefused(t *testing.T) {
	for name, o := range map[string]telemetry.Option{
		"meters": telemetry.WithMeterProvider(nil), "tracers": telemetry.WithTracerProvider(nil),
		"limit": telemetry.WithNameAttribute(0, func(s string) string { return s }),
		"label": telemetry.WithNameAttribute(1, nil), "a nil option": nil,
	} {
		_, err := telemetry.New(o)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "%s: %v", name, err)
	}
}

// Released is told by the call, Lost from a queue: in either order an end is measured once, with its outcome.
func TestTheEndOfAHoldIsMeasuredOnceInEitherOrderOfEvents(t *testing.T) {
	for _, x := range []struct {
		outcome string
		cause   error
		asked   bool
		status  codes.Code
		reason  string
	}{
		{"lost", mortise.ErrLost, false, codes.Error, ",mortise.reason=late"},
		{"expired", mortise.ErrLost, true, codes.Unset, ""},
		{"closed", mortise.ErrClosed, false, codes.Error, ""},
	} {
		for _, unlockedFirst := range []bool{false, true} {
			reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
			o := check.Value(telemetry.New(
				telemetry.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))),
				telemetry.WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(spans))))).In(t)
			end := func(err error) mortise.Event {
				return mortise.Event{Name: "n", Kind: "lock", Owner: "c:1", Lease: 1, Context: t.Context(),
					Held: time.Second, Asked: x.asked, Reason: "late", Err: err}
			}
			events := []func(){
				func() { o.Lost(end(x.cause)) },
				func() { o.Released(end(fmt.Errorf("unlock: %w", x.cause))) },
			}
			if unlockedFirst {
				slices.Reverse(events)
			}
			o.Acquired(mortise.Event{Name: "n", Kind: "lock", Owner: "c:1", Lease: 1, Context: t.Context(), Holds: 1})
			for _, f := range events {
				f()
			}
			got := strings.Join((&seen{T: t, reader: reader}).metrics(), "\n")
			for _, want := range []string{"mortise.held{mortise.kind=lock} 0",
				"mortise.hold{mortise.kind=lock,mortise.outcome=" + x.outcome + "} 1 1",
				"mortise.lost{mortise.kind=lock,mortise.outcome=" + x.outcome + x.reason + "} 1"} {
				check.ErrorIf(t, !strings.Contains(got, want), "%s, unlocked first: %v: no %q in\n%s",
					x.outcome, unlockedFirst, want, got)
			}
			code := spans.Ended()[0].Status().Code
			check.ErrorIf(t, code != x.status, "%s, unlocked first: %v: the span's status is %v",
				x.outcome, unlockedFirst, code)
		}
	}
}
