package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/passport"
	"github.com/mortise-go/mortise/telemetry"
)

func TestPassportsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, s := open(t)
		s.reader = metric.NewManualReader()
		observer, err := telemetry.Passports(telemetry.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(s.reader))))
		if err != nil {
			t.Fatal(err)
		}
		ring, err := passport.NewRing(passport.NewKey("k1", []byte("thirty-two bytes and some more, of a test")))
		if err != nil {
			t.Fatal(err)
		}
		watched := passport.WithObserver(observer)
		issuer, err := passport.NewIssuer(ring, watched, passport.WithNames(func(audience, name string) bool { return strings.HasPrefix(name, "orders:") && audience == "stock" }))
		if err != nil {
			t.Fatal(err)
		}
		checker, err := passport.NewChecker(ring, "stock", watched)
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		outer, err := locks.Lock(ctx, "tenants:7")
		if err != nil {
			t.Fatal(err)
		}
		defer outer.Unlock(ctx)
		inner, err := locks.Lock(outer.Context(), "orders:42")
		if err != nil {
			t.Fatal(err)
		}
		defer inner.Unlock(ctx)
		entry, err := issuer.Issue(inner.Context(), "stock")
		if err != nil {
			t.Fatal(err)
		}
		if none, err := issuer.Issue(inner.Context(), "mail"); none != "" || err != nil {
			t.Fatal(none, err)
		}
		for _, entries := range [][]string{{entry}, {entry}, {entry, entry}, {entry + "A"}, {"forged"}} {
			checker.Check(ctx, entries...)
		}
		s.expect(
			"mortise.passport.issued{mortise.audience=stock,mortise.reason=} 1",
			"mortise.passport.left_out{mortise.audience=mail} 2",
			"mortise.passport.left_out{mortise.audience=stock} 1",
			"mortise.passport.checked{mortise.reason=} 2",
			"mortise.passport.checked{mortise.reason=duplicated} 1",
			"mortise.passport.checked{mortise.reason=malformed} 1",
			"mortise.passport.checked{mortise.reason=version} 1",
		)
		locks.Close()
	})
}

func TestPassportsOptions(t *testing.T) {
	for name, o := range map[string]telemetry.Option{
		"WithNames":       telemetry.WithNames(1, func(string) string { return "" }),
		"WithSpanDetails": telemetry.WithSpanDetails(),
		"no meters":       telemetry.WithMeterProvider(nil),
	} {
		if _, err := telemetry.Passports(o); !errors.Is(err, mortise.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
