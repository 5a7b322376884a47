package telemetry

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/delegation"
)

const (
	keyAudience = attribute.Key("mortise.audience")
	keyReason   = attribute.Key("mortise.reason")
)

// Delegations makes an observer of package delegation, for an Issuer or a Checker or both, with
// these counters:
//
//	mortise.delegation.issued    counter  entries made for calls, and failures of the signer; audience, reason
//	mortise.delegation.left_out  counter  delegations left out, LeftOut of delegation.IssuedEvent; audience
//	mortise.delegation.checked   counter  requests with an entry; reason
//
// The attribute mortise.reason is the result of [delegation.Reason], "" without an error;
// mortise.audience is the called service, as named by the program. No content of a request becomes
// an attribute.
//
// Of the options, [WithMeterProvider] applies. An error wraps [mortise.ErrInvalid], or is the
// meter's.
func Delegations(opts ...Option) (delegation.Observer, error) {
	r, err := newReporter(opts)
	if err != nil {
		return delegation.Observer{}, err
	}
	if r.limit > 0 || r.details {
		return delegation.Observer{}, fmt.Errorf(
			"telemetry: %w: WithNameAttribute and WithSpanDetails do not apply to Delegations", mortise.ErrInvalid)
	}
	m := r.meters.Meter(scope)
	issued, err1 := m.Int64Counter("mortise.delegation.issued", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that were told which locks are held."))
	leftOut, err2 := m.Int64Counter("mortise.delegation.left_out", metric.WithUnit("{delegation}"),
		metric.WithDescription("Delegations that a call was not told of, though they are held."))
	checked, err3 := m.Int64Counter("mortise.delegation.checked", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that told which locks their callers hold."))
	if err := errors.Join(err1, err2, err3); err != nil {
		return delegation.Observer{}, fmt.Errorf("telemetry: %w", err)
	}
	return delegation.Observer{
		Issued: func(e delegation.IssuedEvent) {
			audience := keyAudience.String(e.Audience)
			if e.Delegations > 0 {
				issued.Add(e.Context, 1, metric.WithAttributes(audience, keyReason.String(delegation.Reason(e.Err))))
			}
			if e.LeftOut > 0 {
				leftOut.Add(e.Context, int64(e.LeftOut), metric.WithAttributes(audience))
			}
		},
		Checked: func(e delegation.CheckedEvent) {
			checked.Add(e.Context, 1, metric.WithAttributes(keyReason.String(delegation.Reason(e.Err))))
		},
	}, nil
}
