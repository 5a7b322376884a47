//go:build unix

package grpclock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

func TestCallsBeyondTheLimitsDoNotWait(t *testing.T) {
	for name, c := range map[string]struct {
		opts                           []grpclock.Option
		first                          int // calls for order 42; of the default, a flood
		refusedFirst, served, unserved string
	}{
		"set": {[]grpclock.Option{grpclock.WithMaxWaiters(3, 5)}, 5, "map[ResourceExhausted:2]", "map[OK:5]",
			"map[OK:1 ResourceExhausted:2]"},
		"by default": {nil, 2000, fmt.Sprintf("map[ResourceExhausted:%d]", 2000-grpclock.DefaultMaxWaiters),
			fmt.Sprintf("map[OK:%d]", grpclock.DefaultMaxWaiters+4), "map[OK:1]"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := middle.InMemory(t, memory.New())
				held42 := middle.Holding(t, locks, "orders:42")
				held43 := middle.Holding(t, locks, "orders:43")
				lock := grpclock.UnaryServerInterceptor(locks, grpclock.Methods{unary: order},
					append(c.opts, grpclock.WithMaxClientWait())...)
				var mu sync.Mutex
				got := make(map[string]int)
				call := func(n int, id string) {
					for range n {
						go func() {
							_, err := lock(t.Context(), request(id), &grpc.UnaryServerInfo{FullMethod: unary},
								func(context.Context, any) (any, error) { return nil, nil })
							mu.Lock()
							defer mu.Unlock()
							got[status.Code(err).String()]++
						}()
					}
					synctest.Wait()
				}
				answers := func(what, want string) {
					mu.Lock()
					defer mu.Unlock()
					check.Equal(t, what+": %v", fmt.Sprint(got), want)
					clear(got)
				}
				call(c.first, "42")
				answers("for a lock", c.refusedFirst)
				call(4, "43")
				call(1, "50")
				answers("in all, one of them for a free lock", c.unserved)
				check.Done(t, held42.Unlock(t.Context()))
				check.Done(t, held43.Unlock(t.Context()))
				synctest.Wait()
				answers("once the locks are released", c.served)
			})
		})
	}
	middle.Panic(t, "grpclock: WithMaxWaiters(", map[string]func(){
		"no waiters for a lock": func() { grpclock.WithMaxWaiters(0, 1) },
		"no waiters in all":     func() { grpclock.WithMaxWaiters(1, 0) },
	})
}

// A waiting call keeps its message in memory: gRPC has read it before.
func TestACallWithALargeMessageCountsAsSeveralThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := middle.InMemory(t, memory.New())
		held := middle.Holding(t, locks, middle.Order)
		lock := grpclock.UnaryServerInterceptor(locks, grpclock.Methods{unary: order},
			grpclock.WithMaxClientWait(), grpclock.WithMaxWaiters(10, 4))
		got := make(chan codes.Code, 10)
		call := func(size int) {
			r := request("42")
			r.Payload = &pb.Payload{Body: make([]byte, size)}
			go func() {
				_, err := lock(t.Context(), r, &grpc.UnaryServerInfo{FullMethod: unary},
					func(context.Context, any) (any, error) { return nil, nil })
				got <- status.Code(err)
			}()
			synctest.Wait()
		}
		call(2 << 20) // more than the limit: it waits alone
		call(10)
		check.Equal(t, "behind one that fills the limit: %v", <-got, codes.ResourceExhausted)
		check.Done(t, held.Unlock(t.Context()))
		check.Equal(t, "the large one: %v", <-got, codes.OK)
		held = middle.Holding(t, locks, middle.Order)
		for _, size := range []int{10, 100 << 10, 10, 10} { // one, two, one; no more
			call(size)
		}
		check.Equal(t, "the last one: %v", <-got, codes.ResourceExhausted)
		check.Done(t, held.Unlock(t.Context()))
		for range 3 {
			check.Equal(t, "one that waited: %v", <-got, codes.OK)
		}
	})
}
