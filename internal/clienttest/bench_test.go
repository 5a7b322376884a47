package clienttest

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/mortise-go/mortise/backend"
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

// granting is a store that grants everything at once, and whose callers may leave.
type granting struct {
	backend.Store
	backend.Backend
}

func (granting) Open(backend.Handler) (backend.Store, error) { return granting{}, nil }

func (granting) Capabilities() backend.Capabilities { return backend.Capabilities{Leaver: granting{}} }

func (granting) Leaves(backend.Kind) bool { return true }

func (granting) Close() error { return nil }

func (granting) Acquire(context.Context, backend.AcquireRequest) (backend.AcquireReply, error) {
	return backend.AcquireReply{Granted: true}, nil
}

func (granting) Release(context.Context, backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return backend.ReleaseReply{Held: true}, nil
}

// What a Lock and an Unlock cost beside the store and the client library.
func BenchmarkCore(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(strconv.Itoa(n*2), func(b *testing.B) {
			c := on(b, granting{})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var next atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(n)
			b.RunParallel(func(pb *testing.PB) {
				name := "bench:" + strconv.FormatInt(next.Add(1), 10)
				for pb.Next() {
					l, err := c.Lock(ctx, name)
					if err != nil {
						b.Error(err)
						return
					}
					if err := l.Unlock(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
