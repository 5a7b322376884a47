package fxmodule

import (
	"fmt"
	"reflect"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

// group tags the observers of all modules of a graph.
const group = `group:"mortise.observers"`

// Observe makes all modules of the graph report to the result of a constructor: a function that
// returns a [mortise.Observer], alone or with an error, and takes its parameters from the graph.
// annotations, such as fx.ParamTags, are the annotations of fx.Annotate.
func Observe(constructor any, annotations ...fx.Annotation) fx.Option {
	// A constructor of another type would add to another group of the graph, which no module asks for.
	of := reflect.TypeOf(constructor)
	if of == nil || of.Kind() != reflect.Func || of.NumOut() == 0 || of.Out(0) != reflect.TypeFor[mortise.Observer]() {
		return fx.Error(fmt.Errorf("fxmodule: %w: Observe(%v): the constructor must be a function that returns a "+
			"mortise.Observer", mortise.ErrInvalid, of))
	}
	return fx.Provide(fx.Annotate(constructor, append([]fx.Annotation{fx.ResultTags(group)}, annotations...)...))
}

// Telemetry makes all modules of the graph report to OpenTelemetry: see [telemetry.New]. Telemetry
// takes a metric.MeterProvider and a trace.TracerProvider from the graph if present, and otherwise
// the global providers; opts are applied after the providers.
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
