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

// reporter is the state of an observer.
type reporter struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	tracer  trace.Tracer

	instruments

	limit   int
	label   func(string) string
	details bool // spans have names, owners and errors

	mu     sync.Mutex
	holds  map[hold]held // the holds that have begun and not ended
	others holders
	begun  map[attribute.Distinct]struct{} // the attribute sets whose counters exist
	labels map[string]struct{}             // the values of mortise.name that are kept apart, at most limit
}

type instruments struct {
	wait, hold, renewal               metric.Float64Histogram
	holding, queueing                 metric.Int64UpDownCounter
	handoffs, losses, renewalFailures metric.Int64Counter
	oldest                            metric.Float64ObservableGauge
}

// hold identifies a lease among the leases of all clients.
type hold struct {
	owner string
	lease uint64
}

// held is the state of a hold that has begun.
type held struct {
	span  trace.Span
	since time.Time
	on    attribute.Set
}

const (
	keyClient  = attribute.Key("mortise.client")
	keyKind    = attribute.Key("mortise.kind")
	keyName    = attribute.Key("mortise.name")
	keyOutcome = attribute.Key("mortise.outcome")
	keyOwner   = attribute.Key("mortise.owner")
	keyHolder  = attribute.Key("mortise.holder")
	keyHolds   = attribute.Key("mortise.holds")
	keyToken   = attribute.Key("mortise.token")
)

// reasons are those of losses that nobody asked for: see Event.Reason.
var reasons = []string{"unanswered", "late", "removed", "unlocked"}

// durations are the bucket bounds of the histograms in seconds: from less than a round trip to five minutes.
var durations = metric.WithExplicitBucketBoundaries(
	.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)

func (r *reporter) make(m metric.Meter) error {
	var errs [9]error
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
	r.oldest, errs[8] = m.Float64ObservableGauge("mortise.hold.oldest", metric.WithUnit("s"),
		metric.WithDescription("How long the lease is held that is held longest now."))
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	// A callback given to the constructor is ignored if the provider has the gauge already, of another observer.
	_, err := m.RegisterCallback(r.observeOldest, r.oldest)
	return err
}

// observeOldest reports, for each set of attributes, the age of its oldest hold.
func (r *reporter) observeOldest(_ context.Context, o metric.Observer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := make(map[attribute.Distinct]held)
	for _, h := range r.holds {
		if f, known := first[h.on.Equivalent()]; !known || h.since.Before(f.since) {
			first[h.on.Equivalent()] = h
		}
	}
	for _, h := range first {
		o.ObserveFloat64(r.oldest, time.Since(h.since).Seconds(), metric.WithAttributeSet(h.on))
	}
	return nil
}

// begin adds a hold. The first hold of an attribute set also creates the counters of losses and failed renewals, at
// zero: Prometheus sees no increase in a counter that first appears with a value.
func (r *reporter) begin(s mortise.Event, span trace.Span) {
	set := r.set(s)
	r.mu.Lock()
	r.holds[hold{s.Owner, s.Lease}] = held{span, time.Now(), set}
	r.others.begin(s, span.SpanContext())
	_, known := r.begun[set.Equivalent()]
	r.begun[set.Equivalent()] = struct{}{}
	r.mu.Unlock()
	if ctx := under(s); !known {
		for _, why := range reasons {
			r.losses.Add(ctx, 0, r.on(s, keyOutcome.String(outcomeLost), keyReason.String(why)))
		}
		r.renewalFailures.Add(ctx, 0, metric.WithAttributeSet(set))
	}
}

// on returns the attributes of a measurement.
func (r *reporter) on(s mortise.Event, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(r.set(s, more...))
}

func (r *reporter) set(s mortise.Event, more ...attribute.KeyValue) attribute.Set {
	attrs := append(make([]attribute.KeyValue, 0, 4), keyKind.String(s.Kind))
	attrs = append(attrs, more...)
	if s.Client != "" {
		attrs = append(attrs, keyClient.String(s.Client))
	}
	if r.label != nil {
		attrs = append(attrs, keyName.String(r.labelOf(s.Name)))
	}
	return attribute.NewSet(attrs...)
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

// spanOf returns the attributes of a span.
func (r *reporter) spanOf(s mortise.Event, more ...attribute.KeyValue) trace.SpanStartEventOption {
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

// fail marks a span as failed. The error is recorded only with details: its text may contain names and owners.
func (r *reporter) fail(span trace.Span, err error, how string) {
	if r.details {
		span.RecordError(err)
	}
	span.SetStatus(codes.Error, how)
}

// under returns the caller's context without its end, for exemplars and spans.
func under(s mortise.Event) context.Context {
	if s.Context == nil {
		return context.Background()
	}
	return context.WithoutCancel(s.Context)
}

func (r *reporter) waiting(e mortise.Event) {
	r.queueing.Add(under(e), 1, r.on(e))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others.waits(e)
}

// answered reports a call's answer. It returns the span of the call's wait, if there is one.
func (r *reporter) answered(
	s mortise.Event, waited time.Duration, contended bool, result string, err error,
) (trace.SpanContext, bool) {
	ctx := under(s)
	var others []trace.Link
	if contended {
		r.queueing.Add(ctx, -1, r.on(s))
		r.mu.Lock()
		others = r.others.waited(s)
		r.mu.Unlock()
	}
	r.wait.Record(ctx, waited.Seconds(), r.on(s, keyOutcome.String(result)))
	if !contended && err == nil {
		return trace.SpanContext{}, false
	}
	now := time.Now()
	_, span := r.tracer.Start(ctx, "mortise.wait", trace.WithTimestamp(now.Add(-waited)), trace.WithLinks(others...),
		r.spanOf(s, keyOutcome.String(result)))
	if r.details && err != nil {
		if held := new(mortise.Error); errors.As(err, &held) && held.Owner != "" {
			span.SetAttributes(keyHolder.String(held.Owner))
		}
	}
	if err != nil && result != outcomeNotAcquired && result != outcomeCrowded && result != outcomeCancelled {
		r.fail(span, err, result)
	}
	span.End(trace.WithTimestamp(now))
	return span.SpanContext(), span.SpanContext().IsValid()
}

func (r *reporter) acquired(e mortise.Event) {
	ctx := under(e)
	wait, linked := r.answered(e, e.Waited, e.Contended, outcomeAcquired, nil)
	if e.Contended {
		r.handoffs.Add(ctx, 1, r.on(e))
	}
	if e.Lease == 0 { // no lease, so no hold begins
		return
	}
	opts := []trace.SpanStartOption{r.spanOf(e, keyHolds.Int(e.Holds))}
	if e.Token > 0 {
		opts = append(opts, trace.WithAttributes(keyToken.Int64(e.Token)))
	}
	if linked {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: wait}))
	}
	_, span := r.tracer.Start(ctx, "mortise.hold", opts...)
	r.begin(e, span)
	r.holding.Add(ctx, 1, r.on(e))
}

func (r *reporter) notAcquired(e mortise.Event) {
	result := outcome(e.Err)
	if e.Crowded {
		result = outcomeCrowded
	}
	r.answered(e, e.Waited, e.Contended, result, e.Err)
}

// ended reports the end of a hold, once.
func (r *reporter) ended(s mortise.Event, after time.Duration, how string, err error) {
	key := hold{s.Owner, s.Lease}
	r.mu.Lock()
	h, live := r.holds[key]
	delete(r.holds, key)
	if live {
		r.others.end(s, h.span.SpanContext())
	}
	r.mu.Unlock()
	if !live { // the end was reported before: an Unlock after a loss, or a second Unlock
		return
	}
	ctx := under(s)
	r.holding.Add(ctx, -1, r.on(s))
	r.hold.Record(ctx, after.Seconds(), r.on(s, keyOutcome.String(how)))
	h.span.SetAttributes(keyOutcome.String(how))
	if how == outcomeLost && s.Reason != "" {
		h.span.SetAttributes(keyReason.String(s.Reason))
	}
	if err != nil && how != outcomeExpired {
		r.fail(h.span, err, how)
	}
	h.span.End()
}

func (r *reporter) lost(e mortise.Event) {
	how := outcomeLost
	switch {
	case e.Asked:
		how = outcomeExpired
	case errors.Is(e.Err, mortise.ErrClosed):
		how = outcomeClosed
	}
	attrs := []attribute.KeyValue{keyOutcome.String(how)}
	if how == outcomeLost {
		attrs = append(attrs, keyReason.String(e.Reason))
	}
	r.losses.Add(under(e), 1, r.on(e, attrs...))
	r.ended(e, e.Held, how, e.Err)
}

// released may be called before lost, for the same hold: events of losses go through a queue.
func (r *reporter) released(e mortise.Event) {
	how := "released"
	switch {
	case e.Asked:
		how = outcomeExpired
	case errors.Is(e.Err, mortise.ErrLost):
		how = outcomeLost
	case errors.Is(e.Err, mortise.ErrClosed):
		how = outcomeClosed
	}
	r.ended(e, e.Held, how, e.Err)
}

func (r *reporter) renewed(e mortise.Event) {
	r.renewal.Record(under(e), e.Took.Seconds(), r.on(e))
}

func (r *reporter) renewalFailed(e mortise.Event) {
	r.renewalFailures.Add(under(e), 1, r.on(e))
}

const (
	outcomeAcquired    = "acquired"
	outcomeNotAcquired = "not_acquired"
	outcomeCrowded     = "crowded"
	outcomeCancelled   = "cancelled"
	outcomeLost        = "lost"
	outcomeExpired     = "expired"
	outcomeClosed      = "closed"
)

// outcome returns the mortise.outcome of a call that failed.
func outcome(err error) string {
	switch {
	case errors.Is(err, mortise.ErrNotAcquired):
		return outcomeNotAcquired
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return outcomeCancelled
	case errors.Is(err, mortise.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, mortise.ErrClosed):
		return outcomeClosed
	}
	return "error"
}
