package mortise

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/mortise-go/mortise/backend"
)

// granting is a store that grants everything at once, and whose callers may leave.
type granting struct {
	backend.Store
	backend.Backend
}

func (granting) Open(backend.Handler) (backend.Store, error) { return granting{}, nil }
func (granting) Capabilities() backend.Capabilities          { return backend.Capabilities{Leaver: granting{}} }
func (granting) Leaves(backend.Kind) bool                    { return true }
func (granting) Close() error                                { return nil }
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
