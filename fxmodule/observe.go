package fxmodule

import (
	"fmt"
	"reflect"

	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
)

// group tags the observers of all modules of a graph.
const group = `group:"mortise.observers"`

// Observe makes all modules of the graph report to the result of a constructor: a function that
// returns a [mortise.Observer], alone or with an error, and takes its parameters from the graph.
// annotations, such as fx.ParamTags, are the annotations of fx.Annotate. For OpenTelemetry the constructor is one that
// calls New of package telemetry, a module of its own, so that graphs without it do not link it.
func Observe(constructor any, annotations ...fx.Annotation) fx.Option {
	// A constructor of another type would add to another group of the graph, which no module asks for.
	of := reflect.TypeOf(constructor)
	if of == nil || of.Kind() != reflect.Func || of.NumOut() == 0 || of.Out(0) != reflect.TypeFor[mortise.Observer]() {
		return fx.Error(fmt.Errorf("fxmodule: %w: Observe(%v): the constructor must be a function that returns a "+
			"mortise.Observer", mortise.ErrInvalid, of))
	}
	return fx.Provide(fx.Annotate(constructor, append([]fx.Annotation{fx.ResultTags(group)}, annotations...)...))
}
