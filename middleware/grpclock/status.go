package grpclock

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// Domain is the domain of the ErrorInfo in each status.
const Domain = "github.com/mortise-go/mortise"

// The reasons in the ErrorInfo of a status. docs/reference/problems.md explains them.
const (
	ReasonLocked          = "LOCKED"            // Aborted
	ReasonCrowded         = "TOO_MANY_WAITING"  // ResourceExhausted
	ReasonUnavailable     = "STORE_UNAVAILABLE" // Unavailable
	ReasonClosing         = "SHUTTING_DOWN"     // Unavailable
	ReasonLost            = "LOCK_LOST"         // Unknown
	ReasonTimeout         = "TIMED_OUT"         // DeadlineExceeded
	ReasonClientGone      = "CLIENT_GONE"       // Canceled
	ReasonBadKey          = "BAD_KEY"           // InvalidArgument
	ReasonDelegationEnded = "DELEGATION_ENDED"  // FailedPrecondition
	ReasonBadDelegation   = "BAD_DELEGATION"    // InvalidArgument or PermissionDenied, by UnaryDelegationInterceptor
	ReasonUnverified      = "UNVERIFIED"        // Unavailable, by UnaryDelegationInterceptor
	ReasonInternal        = "INTERNAL"          // Internal
)

// soon is the retry delay if no remaining lease of a holder is known.
const soon = time.Second

func problem(
	code codes.Code, reason, message string, retry time.Duration, more ...protoadapt.MessageV1,
) *status.Status {
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: Domain}}
	if retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retry)})
	}
	s := status.New(code, message)
	if with, err := s.WithDetails(append(details, more...)...); err == nil {
		return with
	}
	return s
}

func badKey(err error) *status.Status {
	var v *middleware.ValueError
	switch {
	case errors.As(err, &v):
		violation := &errdetails.BadRequest_FieldViolation{Field: v.Name, Description: v.Why}
		return problem(codes.InvalidArgument, ReasonBadKey, "the call does not say what to lock: "+v.Error(), 0,
			&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{violation}})
	case errors.Is(err, errMisused):
		return problem(codes.Internal, ReasonInternal, "the lock is not usable", 0)
	}
	return problem(codes.InvalidArgument, ReasonBadKey, "the call does not say what to lock", 0)
}

// refused returns the status of a call whose lock was not acquired. Most bounds the retry delay.
func refused(ctx context.Context, err error, most time.Duration) *status.Status {
	switch {
	case middleware.IsCrowded(err):
		return problem(codes.ResourceExhausted, ReasonCrowded,
			"what this call needs is locked, and too many calls wait; try again later", most)
	case errors.Is(err, mortise.ErrNotAcquired):
		retry := soon
		var e *mortise.Error
		if errors.As(err, &e) && e.Remaining > 0 {
			retry = min(e.Remaining, most)
		}
		return problem(codes.Aborted, ReasonLocked, "what this call needs is locked by another one; try again later", retry)
	case errors.Is(err, delegation.ErrEnded):
		return problem(codes.FailedPrecondition, ReasonDelegationEnded,
			"the caller that this call comes from holds the lock no longer; nothing was done", 0)
	case errors.Is(err, mortise.ErrUnavailable):
		return problem(codes.Unavailable, ReasonUnavailable, "the lock service is not available", soon)
	case errors.Is(err, mortise.ErrClosed):
		return problem(codes.Unavailable, ReasonClosing, "the server is shutting down", soon)
	case errors.Is(err, mortise.ErrInvalidName):
		return badKey(err)
	case errors.Is(context.Cause(ctx), mortise.ErrLost): // the lock of an outer interceptor was lost
		return lost()
	case ctx.Err() == nil:
		return problem(codes.Internal, ReasonInternal, "the lock is not usable", 0)
	case errors.Is(ctx.Err(), context.DeadlineExceeded), deadlineCancelled(ctx):
		return problem(codes.DeadlineExceeded, ReasonTimeout, "the call's time ran out while it waited for its lock", 0)
	}
	return problem(codes.Canceled, ReasonClientGone, "the client did not wait", 0)
}

// cancelEarly is how long before the server's deadline the client's cancellation at its own deadline may arrive: it
// travels faster than the call did, or the server's timer is late.
const cancelEarly = 10 * time.Millisecond

// deadlineCancelled reports whether ctx, which is cancelled, has come to its deadline.
func deadlineCancelled(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= cancelEarly
}

// lost returns the status of a call whose handler had begun: neither the code nor a delay asks for a retry.
func lost() *status.Status {
	return problem(codes.Unknown, ReasonLost, "the lock was lost while the call was being worked on; "+
		"find out what was done before it is repeated", 0)
}
