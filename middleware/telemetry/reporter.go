package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/mortise-go/mortise"
)

// reporter is an observer's state.
type reporter struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	tracer  trace.Tracer

	instruments

	limit   int
	label   func(string) string
	details bool // spans have names, owners and errors

	mu     sync.Mutex
	holds  map[hold]trace.Span // that have begun
	labels map[string]struct{} // that are kept apart
}

type instruments struct {
	wait, hold, renewal               metric.Float64Histogram
	holding, queueing                 metric.Int64UpDownCounter
	handoffs, losses, renewalFailures metric.Int64Counter
}

// hold tells a lease from all others, also those of other clients.
type hold struct {
	owner string
	lease uint64
}

const (
	keyClient  = attribute.Key("mortise.client")
	keyKind    = attribute.Key("mortise.kind")
	keyName    = attribute.Key("mortise.name")
	keyOutcome = attribute.Key("mortise.outcome")
	keyOwner   = attribute.Key("mortise.owner")
	keyHolds   = attribute.Key("mortise.holds")
	keyToken   = attribute.Key("mortise.token")
)

// durations are bucket bounds from a round trip to a watchdog timeout, in seconds.
var durations = metric.WithExplicitBucketBoundaries(
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)

func (r *instruments) make(m metric.Meter) error {
	var errs [8]error
	r.wait, errs[0] = m.Float64Histogram("mortise.wait", metric.WithUnit("s"), durations,
		metric.WithDescription("Time from a call to its answer."))
	r.hold, errs[1] = m.Float64Histogram("mortise.hold", metric.WithUnit("s"), durations,
		metric.WithDescription("Time from acquisition to release or loss."))
	r.renewal, errs[2] = m.Float64Histogram("mortise.renewal", metric.WithUnit("s"), durations,
		metric.WithDescription("Time that the store took to renew a lease."))
	r.holding, errs[3] = m.Int64UpDownCounter("mortise.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that are held now."))
	r.queueing, errs[4] = m.Int64UpDownCounter("mortise.waiting", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that wait now."))
	r.handoffs, errs[5] = m.Int64Counter("mortise.handoffs", metric.WithUnit("{lease}"),
		metric.WithDescription("Acquisitions that had to wait for another holder."))
	r.losses, errs[6] = m.Int64Counter("mortise.lost", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases that ended without Unlock."))
	r.renewalFailures, errs[7] = m.Int64Counter("mortise.renewal.failures", metric.WithUnit("{renewal}"),
		metric.WithDescription("Renewals that the store did not answer; they are retried within the lease."))
	return errors.Join(errs[:]...)
}

// on are the attributes of a measurement.
func (r *reporter) on(s mortise.Subject, more ...attribute.KeyValue) metric.MeasurementOption {
	attrs := append(make([]attribute.KeyValue, 0, 4), keyKind.String(s.Kind))
	attrs = append(attrs, more...)
	if s.Client != "" {
		attrs = append(attrs, keyClient.String(s.Client))
	}
	if r.label != nil {
		attrs = append(attrs, keyName.String(r.labelOf(s.Name)))
	}
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}

func (r *reporter) labelOf(name string) string {
	label := r.label(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.labels[label]; known {
		return label
	}
	if len(r.labels) == r.limit {
		return "other"
	}
	r.labels[label] = struct{}{}
	return label
}

// spanOf are the attributes of a span.
func (r *reporter) spanOf(s mortise.Subject, more ...attribute.KeyValue) trace.SpanStartEventOption {
	attrs := append(more, keyKind.String(s.Kind))
	if s.Client != "" {
		attrs = append(attrs, keyClient.String(s.Client))
	}
	switch {
	case r.details:
		attrs = append(attrs, keyName.String(s.Name))
		if s.Owner != "" {
			attrs = append(attrs, keyOwner.String(s.Owner))
		}
	case r.label != nil:
		attrs = append(attrs, keyName.String(r.labelOf(s.Name)))
	}
	return trace.WithAttributes(attrs...)
}

// fail marks a span as that of an error. The error's text may have names and owners in it.
func (r *reporter) fail(span trace.Span, err error, how string) {
	if r.details {
		span.RecordError(err)
	}
	span.SetStatus(codes.Error, how)
}

// under is the caller's context, for exemplars and spans, without its end.
func under(s mortise.Subject) context.Context {
	if s.Context == nil {
		return context.Background()
	}
	return context.WithoutCancel(s.Context)
}

func (r *reporter) waiting(e mortise.WaitingEvent) {
	r.queueing.Add(under(e.Subject), 1, r.on(e.Subject))
}

// answered reports a call's answer, and returns the span of its wait if there is one.
func (r *reporter) answered(
	s mortise.Subject, waited time.Duration, contended bool, result string, err error,
) (trace.SpanContext, bool) {
	ctx := under(s)
	if contended {
		r.queueing.Add(ctx, -1, r.on(s))
	}
	r.wait.Record(ctx, waited.Seconds(), r.on(s, keyOutcome.String(result)))
	if !contended && err == nil {
		return trace.SpanContext{}, false
	}
	now := time.Now()
	_, span := r.tracer.Start(ctx, "mortise.wait", trace.WithTimestamp(now.Add(-waited)),
		r.spanOf(s, keyOutcome.String(result)))
	if err != nil && result != outcomeNotAcquired && result != outcomeCancelled {
		r.fail(span, err, result)
	}
	span.End(trace.WithTimestamp(now))
	return span.SpanContext(), span.SpanContext().IsValid()
}

func (r *reporter) acquired(e mortise.AcquiredEvent) {
	ctx := under(e.Subject)
	wait, linked := r.answered(e.Subject, e.Waited, e.Contended, outcomeAcquired, nil)
	if e.Contended {
		r.handoffs.Add(ctx, 1, r.on(e.Subject))
	}
	if e.Lease == 0 { // there is nothing that could end
		return
	}
	opts := []trace.SpanStartOption{r.spanOf(e.Subject, keyHolds.Int(e.Holds))}
	if e.Token > 0 {
		opts = append(opts, trace.WithAttributes(keyToken.Int64(e.Token)))
	}
	if linked {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: wait}))
	}
	_, span := r.tracer.Start(ctx, "mortise.hold", opts...)
	r.mu.Lock()
	r.holds[hold{e.Owner, e.Lease}] = span
	r.mu.Unlock()
	r.holding.Add(ctx, 1, r.on(e.Subject))
}

func (r *reporter) notAcquired(e mortise.NotAcquiredEvent) {
	r.answered(e.Subject, e.Waited, e.Contended, outcome(e.Err), e.Err)
}

// ended reports the end of a hold, once.
func (r *reporter) ended(s mortise.Subject, after time.Duration, how string, err error) {
	key := hold{s.Owner, s.Lease}
	r.mu.Lock()
	span, live := r.holds[key]
	delete(r.holds, key)
	r.mu.Unlock()
	if !live { // an Unlock of what was lost, or a second one
		return
	}
	ctx := under(s)
	r.holding.Add(ctx, -1, r.on(s))
	r.hold.Record(ctx, after.Seconds(), r.on(s, keyOutcome.String(how)))
	span.SetAttributes(keyOutcome.String(how))
	if err != nil {
		r.fail(span, err, how)
	}
	span.End()
}

func (r *reporter) lost(e mortise.LostEvent) {
	how := "lost"
	if errors.Is(e.Err, mortise.ErrClosed) {
		how = "closed"
	}
	r.losses.Add(under(e.Subject), 1, r.on(e.Subject, keyOutcome.String(how)))
	r.ended(e.Subject, e.Held, how, e.Err)
}

// released may come before lost, which is told from a queue.
func (r *reporter) released(e mortise.ReleasedEvent) {
	how := "released"
	if errors.Is(e.Err, mortise.ErrLost) {
		how = "lost"
	}
	r.ended(e.Subject, e.Held, how, e.Err)
}

func (r *reporter) renewed(e mortise.RenewedEvent) {
	r.renewal.Record(under(e.Subject), e.Took.Seconds(), r.on(e.Subject))
}

func (r *reporter) renewalFailed(e mortise.RenewalFailedEvent) {
	r.renewalFailures.Add(under(e.Subject), 1, r.on(e.Subject))
}

const (
	outcomeAcquired    = "acquired"
	outcomeNotAcquired = "not_acquired"
	outcomeCancelled   = "cancelled"
)

// outcome is the class of an error.
func outcome(err error) string {
	switch {
	case errors.Is(err, mortise.ErrNotAcquired):
		return outcomeNotAcquired
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return outcomeCancelled
	case errors.Is(err, mortise.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, mortise.ErrClosed):
		return "closed"
	}
	return "error"
}
