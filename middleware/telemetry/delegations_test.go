package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

func TestDelegationsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, s := open(t)
		s.reader = metric.NewManualReader()
		observer := check.Value(
			telemetry.Delegations(telemetry.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(s.reader))))).In(t)
		ring := check.Value(delegation.NewRing(delegation.NewKey("k1",
			[]byte("thirty-two bytes and some more, of a test")))).In(t)
		watched := delegation.WithObserver(observer)
		issuer := check.Value(delegation.NewIssuer(ring, watched,
			delegation.WithNameFilter(func(audience, name string) bool {
				return strings.HasPrefix(name, "orders:") && audience == "stock"
			}))).In(t)
		checker := check.Value(delegation.NewChecker(ring, "stock", watched)).In(t)
		ctx := context.Background()
		outer := check.Value(locks.Lock(ctx, "tenants:7")).In(t)
		defer outer.Unlock(ctx)
		inner := check.Value(locks.Lock(outer.Context(), "orders:42")).In(t)
		defer inner.Unlock(ctx)
		entry := check.Value(issuer.Issue(inner.Context(), "stock")).In(t)
		if none, err := issuer.Issue(inner.Context(), "mail"); none != "" || err != nil {
			t.Fatal(none, err)
		}
		for _, entries := range [][]string{{entry}, {entry}, {entry, entry}, {entry + "A"}, {"forged"}} {
			checker.Check(ctx, entries...)
		}
		s.expect(
			"mortise.delegation.issued{mortise.audience=stock,mortise.reason=} 1",
			"mortise.delegation.left_out{mortise.audience=mail} 2",
			"mortise.delegation.left_out{mortise.audience=stock} 1",
			"mortise.delegation.checked{mortise.reason=} 2",
			"mortise.delegation.checked{mortise.reason=duplicated} 1",
			"mortise.delegation.checked{mortise.reason=malformed} 1",
			"mortise.delegation.checked{mortise.reason=version} 1",
		)
		locks.Close()
	})
}

func TestDelegationsOptions(t *testing.T) {
	for name, o := range map[string]telemetry.Option{
		"WithNameAttribute": telemetry.WithNameAttribute(1, func(string) string { return "" }),
		"WithSpanDetails":   telemetry.WithSpanDetails(),
		"no meters":         telemetry.WithMeterProvider(nil),
	} {
		_, err := telemetry.Delegations(o)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "%s: %v", name, err)
	}
}
