package telemetry_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

func newObserved(store backend.Backend, logger *slog.Logger) (*mortise.Client, error) {
	observer, err := telemetry.New() // OpenTelemetry's global providers; WithMeterProvider, WithTracerProvider
	if err != nil {
		return nil, err
	}
	return mortise.New(store, mortise.WithLogger(logger), mortise.WithObserver(observer))
}

func TestAnObservedClientLogsALoss(t *testing.T) {
	store, log := memory.New(), new(bytes.Buffer)
	locks, err := newObserved(store, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := locks.Lock(t.Context(), "orders:42")
	if err != nil {
		t.Fatal(err)
	}
	store.Delete("orders:42")
	<-lease.Context().Done()
	if err := locks.Close(); err != nil { // the log is complete afterwards
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "orders:42") {
		t.Errorf("the log: %q", log)
	}
}
