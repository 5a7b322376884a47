package mortise

import (
	"context"
	"testing"

	"github.com/mortise-go/mortise/backend/memory"
)

// What a Lock and an Unlock cost beside the store's answer.
func BenchmarkUncontended(b *testing.B) {
	for _, bb := range []struct {
		name string
		ctx  func() (context.Context, context.CancelFunc)
	}{
		{"background", func() (context.Context, context.CancelFunc) { return context.Background(), func() {} }},
		{"cancellable", func() (context.Context, context.CancelFunc) { return context.WithCancel(context.Background()) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			c := on(b, memory.New())
			ctx, cancel := bb.ctx()
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				l := need(c.Lock(ctx, "x"))(b)
				if err := l.Unlock(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
