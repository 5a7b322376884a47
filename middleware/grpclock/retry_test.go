package grpclock_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// boundedRetry: findings U8, a holder's lease of 30 s is no reason to stay away for as long.
func boundedRetry(s *site) {
	s.never()
	release := s.Hold()
	for want, opts := range map[time.Duration][]grpclock.Option{
		grpclock.DefaultRetryAfter: nil, time.Second: {grpclock.WithRetryAfter(time.Second)},
	} {
		got := s.want(call(s.ctx(), s.unary(opts...), "42"), codes.Aborted, grpclock.ReasonLocked)
		check.ErrorIf(s, got != want, "the delay is %v, want %v", got, want)
	}
	release()
}

func TestARetryDelayOfLessThanASecondIsRefused(t *testing.T) {
	defer func() { check.ErrorIf(t, recover() == nil, "WithRetryAfter of less than a second is not refused") }()
	grpclock.WithRetryAfter(time.Millisecond)
}
