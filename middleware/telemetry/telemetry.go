// Package telemetry reports the events of a mortise client to OpenTelemetry, as a
// [mortise.Observer]: metrics of waits, holds, losses and renewals, and spans for each wait and
// each hold.
//
//	observer, err := telemetry.New()
//	locks, err := mortise.New(backend, mortise.WithObserver(observer))
//
// # Metrics
//
//	mortise.wait          s   histogram  from the call to its answer; kind, outcome
//	mortise.hold          s   histogram  from acquisition to release or loss; kind, outcome
//	mortise.hold.oldest   s   gauge      age of the oldest lease now held; kind
//	mortise.held              gauge      leases now held; kind
//	mortise.waiting           gauge      calls now waiting; kind
//	mortise.handoffs          counter    acquisitions after a wait for another owner; kind
//	mortise.lost              counter    leases that ended without Unlock; kind, outcome, reason
//	mortise.renewal       s   histogram  time the store took to renew; kind
//	mortise.renewal.failures  counter    renewals without an answer of the store; kind
//
// The attribute mortise.kind is the Kind of [mortise.Event]. All metrics and spans have the
// attribute mortise.client, the client's [mortise.WithName]; without WithName the attribute is left
// out. mortise.outcome of a wait is "acquired", "not_acquired" (the lock was not free in time),
// "crowded" (refused by [mortise.WithMaxWaiters]), "cancelled" (the caller's context ended),
// "unavailable" (the store), "closed" (this client) or "error"; of a hold and of mortise.lost,
// "released", "lost", "expired" or "closed". "expired" is a lease whose time was over by
// [mortise.WithLease] or [mortise.WithMaxHold], "closed" a lease still held at the shutdown of its
// client. Names of locks are no attribute, for there may be millions: see [WithNameAttribute].
//
// mortise.reason is there where the outcome of mortise.lost is "lost": the Reason of [mortise.Event]. "unanswered" is
// the store's fault or the network's, "late" this process's, which was paused or starved; "removed" is another
// program's, or a store that lost its data, and "unlocked" ForceUnlock of this client.
//
// mortise.lost (of outcome "lost", of each reason) and mortise.renewal.failures exist from the first lease on, at
// zero, so a query for their increase sees the first loss. docs/alerts has alerts for Prometheus
// and a dashboard for Grafana.
//
// Waits and holds are measured under the caller's context: where its span is sampled, the histograms have exemplars
// with the trace (in the Prometheus exporter, with OpenMetrics).
//
// Every lease under another lease, a re-entry, counts for itself. Delegations between services are
// counted by [Delegations].
//
// # Spans
//
// "mortise.wait" is a call that had to wait, or failed; "mortise.hold" a lease, from its
// acquisition to its end. Both are children of the span in the caller's context, if there is one,
// and a hold is linked to the wait before the hold. When a wait ends, it is linked to the holds of that lock that
// last, and to the one that ended last: eight at most, with mortise.link=holder, as far as they are sampled and of a
// client with the same [mortise.WithName]. Clients of different stores with one observer need different names. For
// holds of other processes, see [WithSpanDetails]. Spans carry kind and outcome, a hold its hold
// count and its fencing token as well, and a lost one the reason. The status of a failed wait, a failed
// release and a lost hold is Error; "expired" is no error. Left out are names of locks, owners (with host names and
// process ids), and the texts of errors (with both): [WithNameAttribute] adds a bounded name,
// [WithSpanDetails] adds all of them.
package telemetry

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/mortise-go/mortise"
)

// scope is the name of the instrumentation.
const scope = "github.com/mortise-go/mortise/middleware/telemetry"

// Option changes what [New] makes.
type Option func(*reporter) error

// WithMeterProvider sets the destination of metrics. The default is the result of
// otel.GetMeterProvider() when New is called.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(r *reporter) error {
		if p == nil {
			return fmt.Errorf("%w: WithMeterProvider(nil)", mortise.ErrInvalid)
		}
		r.meters = p
		return nil
	}
}

// WithTracerProvider sets the destination of spans. The default is the result of
// otel.GetTracerProvider() when New is called.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(r *reporter) error {
		if p == nil {
			return fmt.Errorf("%w: WithTracerProvider(nil)", mortise.ErrInvalid)
		}
		r.tracers = p
		return nil
	}
}

// WithNameAttribute adds the attribute mortise.name to metrics and spans. label maps a lock's name
// to the attribute's value, such as "orders:42" to "orders"; label must be fast and is called
// concurrently. The first limit values are kept apart; further values are reported as "other".
// limit is at least one.
func WithNameAttribute(limit int, label func(name string) string) Option {
	return func(r *reporter) error {
		if limit < 1 || label == nil {
			return fmt.Errorf("%w: WithNameAttribute needs a limit of 1 or more, and a function", mortise.ErrInvalid)
		}
		r.limit, r.label = limit, label
		r.labels = make(map[string]struct{})
		return nil
	}
}

// WithSpanDetails adds to spans the name of the lock (mortise.name), its owner (mortise.owner) and,
// as an exception event, the text of an error. A wait that ended without the lock has the owner that
// held it (mortise.holder), where its error has it: the span of that hold, in whatever process, has the
// same mortise.owner. A store of traces then keeps names with data about
// customers, if there are any. Metrics are as without this option.
func WithSpanDetails() Option {
	return func(r *reporter) error {
		r.details = true
		return nil
	}
}

// New makes an observer that reports to OpenTelemetry. The observer may serve several clients,
// keeps a small record for each held lease, and lives as long as its meter provider. Two observers
// of a meter provider need clients with different names ([mortise.WithName]): of equal attributes
// mortise.hold.oldest reports the value of one observer. An error wraps [mortise.ErrInvalid], or is
// the meter's.
func New(opts ...Option) (mortise.Observer, error) {
	r, err := newReporter(opts)
	if err != nil {
		return mortise.Observer{}, err
	}
	r.tracer = r.tracers.Tracer(scope)
	if err := r.make(r.meters.Meter(scope)); err != nil {
		return mortise.Observer{}, fmt.Errorf("telemetry: %w", err)
	}
	return mortise.Observer{
		Waiting:       r.waiting,
		Acquired:      r.acquired,
		NotAcquired:   r.notAcquired,
		Renewed:       r.renewed,
		RenewalFailed: r.renewalFailed,
		Lost:          r.lost,
		Released:      r.released,
	}, nil
}

func newReporter(opts []Option) (*reporter, error) {
	r := &reporter{
		meters:  otel.GetMeterProvider(),
		tracers: otel.GetTracerProvider(),
		holds:   make(map[hold]held),
		others:  make(holders),
		begun:   make(map[attribute.Distinct]struct{}),
	}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("telemetry: %w: a nil Option; omit it", mortise.ErrInvalid)
		}
		if err := o(r); err != nil {
			return nil, fmt.Errorf("telemetry: %w", err)
		}
	}
	return r, nil
}
