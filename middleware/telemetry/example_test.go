package telemetry_test

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

func ExampleNew() {
	reader := metric.NewManualReader() // in a program: an exporter, such as Prometheus'
	observer, err := telemetry.New(
		telemetry.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))),
		telemetry.WithNameAttribute(20, func(name string) string { // "orders:42" is counted under "orders"
			family, _, _ := strings.Cut(name, ":")
			return family
		}),
	)
	if err != nil {
		panic(err)
	}
	locks, err := mortise.New(memory.New(), mortise.WithObserver(observer))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	ctx := context.Background()
	for _, order := range []string{"orders:1", "orders:2"} {
		if err := mortise.Do(ctx, locks, order, func(context.Context) error { return nil }); err != nil {
			panic(err)
		}
	}

	var data metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &data); err != nil {
		panic(err)
	}
	for _, m := range data.ScopeMetrics[0].Metrics {
		if waits, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "mortise.wait" {
			p := waits.DataPoints[0]
			name, _ := p.Attributes.Value("mortise.name")
			fmt.Println(m.Name, name.AsString(), p.Count)
		}
	}
	// Output: mortise.wait orders 2
}
