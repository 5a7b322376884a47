// Package loss says when the lock of a request that is being served is lost.
package loss

import (
	"errors"
	"time"

	"github.com/mortise-go/mortise"
)

// Check is how often a lease is checked after its context ended with the request's: a loss no longer shows in the
// context.
const Check = 250 * time.Millisecond

// Is reports whether err says that a lease ended without Unlock.
func Is(err error) bool {
	return errors.Is(err, mortise.ErrLost) || errors.Is(err, mortise.ErrClosed)
}

// Await waits until the lease, whose context has ended, is lost, and returns the cause. It returns nil if the lease was
// unlocked, or the handler has returned.
func Await(lease *mortise.Lease, returned <-chan struct{}) error {
	for {
		if err := lease.Err(); Is(err) {
			return err
		} else if err != nil {
			return nil
		}
		select { // the context ended with its parent, the request's
		case <-returned:
			return nil
		case <-time.After(Check):
		}
	}
}
