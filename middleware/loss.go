package middleware

import (
	"errors"
	"time"

	"github.com/mortise-go/mortise"
)

// LossCheck is how often a lease is checked after its context ended with the request's: a loss no longer shows in the
// context.
const LossCheck = 250 * time.Millisecond

// IsLoss reports whether err, such as that of [mortise.Lease.Err], says that a lease ended without Unlock.
func IsLoss(err error) bool {
	return errors.Is(err, mortise.ErrLost) || errors.Is(err, mortise.ErrClosed)
}

// AwaitLoss waits until the lease, whose context has ended, is lost, and returns the cause. It returns nil if the lease
// was unlocked, or returned is closed because the handler has returned.
func AwaitLoss(lease *mortise.Lease, returned <-chan struct{}) error {
	for {
		if err := lease.Err(); IsLoss(err) {
			return err
		} else if err != nil {
			return nil
		}
		select { // the context ended with its parent, the request's
		case <-returned:
			return nil
		case <-time.After(LossCheck):
		}
	}
}
