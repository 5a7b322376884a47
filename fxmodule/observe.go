package fxmodule

import (
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

// group tags the observers of all modules of a graph.
const group = `group:"mortise.observers"`

// Observe has all modules of the graph call what a constructor makes: a function that
// returns a [mortise.Observer], or one and an error, and takes what it needs from the graph. annotations,
// such as fx.ParamTags, are those of fx.Annotate.
func Observe(constructor any, annotations ...fx.Annotation) fx.Option {
	return fx.Provide(fx.Annotate(constructor, append([]fx.Annotation{fx.ResultTags(group)}, annotations...)...))
}

// Telemetry has all modules of the graph report to OpenTelemetry: see [telemetry.New]. It takes a
// metric.MeterProvider and a trace.TracerProvider from the graph where they are there, and else
// the global ones; opts come after these.
func Telemetry(opts ...telemetry.Option) fx.Option {
	return Observe(
		func(meters metric.MeterProvider, tracers trace.TracerProvider) (mortise.Observer, error) {
			var from []telemetry.Option
			if meters != nil {
				from = append(from, telemetry.WithMeterProvider(meters))
			}
			if tracers != nil {
				from = append(from, telemetry.WithTracerProvider(tracers))
			}
			return telemetry.New(append(from, opts...)...)
		},
		fx.ParamTags(`optional:"true"`, `optional:"true"`),
	)
}
