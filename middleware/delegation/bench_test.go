package delegation_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// What a call pays for it, in time and in bytes of its header:
//
//	go test -run '^$' -bench . ./middleware/delegation
//
// docs/reference/performance.md has a run of it.

// held is a context that holds n locks of n names.
func held(b *testing.B, n int) context.Context {
	c, ctx := middle.InMemory(b, memory.New()), context.Background()
	for i := range n {
		ctx = lock(b, c, ctx, fmt.Sprint("tenants:acme:orders:", 1000+i), mortise.WithLease(time.Hour)).Context()
	}
	return ctx
}

func BenchmarkIssue(b *testing.B) {
	for _, n := range []int{0, 1, 4, 16} {
		b.Run(fmt.Sprintf("delegations=%d", n), func(b *testing.B) {
			i, ctx := middle.Issuer(b, ring(b, "2026-11")), held(b, n)
			bytes := 0
			b.ReportAllocs()
			for b.Loop() {
				entry, err := i.Issue(ctx, "stock")
				if err != nil || (entry == "") != (n == 0) {
					b.Fatal(entry, err)
				}
				bytes = len(entry)
			}
			if n > 0 {
				bytes += len(delegation.Header) + len(": \r\n")
			}
			b.ReportMetric(float64(bytes), "header-B")
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	r := ring(b, "2026-11", "2026-10", "2026-09")
	c := middle.Checker(b, r, "stock", delegation.WithLongest(delegation.MaxLifetime))
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("delegations=%d", n), func(b *testing.B) {
			entry, err := middle.Issuer(b, r, delegation.WithLifetime(delegation.MaxLifetime)).Issue(held(b, n), "stock")
			check.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				check.NoError(b, check.Err(c.Check(ctx, entry)))
			}
		})
	}
	for name, entry := range map[string]string{
		"refused=malformed": "m1." + strings.Repeat("A", delegation.MaxEntry-3),
		"refused=oversize":  strings.Repeat("A", 1<<20),
		"refused=tampered": sign(b, valid(),
			func() delegation.Signer { k := key("x"); k.ID = "2026-11"; r, _ := delegation.NewRing(k); return r }()),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				check.FatalIf(b, check.Err(c.Check(ctx, entry)) == nil, "accepted")
			}
		})
	}
}
