//go:build unix

package grpclock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// cancelled is the context of a call whose client cancels: the server's own timer has not ended it.
type cancelled struct {
	context.Context
	deadline time.Time // zero for none
}

func (c cancelled) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// A client cancels its call at the deadline, and the cancellation may arrive before the server's timer fires.
func TestACancellationAtTheDeadlineIsTheDeadlines(t *testing.T) {
	for name, c := range map[string]struct {
		left   time.Duration // until the deadline, when the client cancels; -1 for no deadline
		code   codes.Code
		reason string
	}{
		"after the deadline":       {-time.Millisecond, codes.DeadlineExceeded, grpclock.ReasonTimeout},
		"just before the deadline": {time.Millisecond, codes.DeadlineExceeded, grpclock.ReasonTimeout},
		"long before the deadline": {time.Second, codes.Canceled, grpclock.ReasonClientGone},
		"without a deadline":       {-1, codes.Canceled, grpclock.ReasonClientGone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := middle.InMemory(t, memory.New())
				middle.Holding(t, locks, middle.Order)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Minute, cancel)
				call := cancelled{Context: ctx}
				if c.left != -1 {
					call.deadline = time.Now().Add(time.Minute + c.left)
				}
				lock := grpclock.UnaryServerInterceptor(locks, grpclock.Methods{unary: order}, grpclock.WithMaxClientWait())
				_, err := lock(call, request("42"), &grpc.UnaryServerInfo{FullMethod: unary}, nil)
				(&site{Site: &middle.Site{T: t}}).want(err, c.code, c.reason)
			})
		})
	}
}
