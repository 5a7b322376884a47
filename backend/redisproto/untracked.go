package redisproto

import (
	"context"
	"sync/atomic"
	"time"
)

// shunned is for how long another connection is not used after it failed: the one that tracks has somebody who
// listens, and is made again as soon as it breaks.
const shunned = time.Second

// untracked sends what need not be tracked: over the other connection, if there is one. While that fails what
// is to be sent goes by the adapter, as what is sent again then does.
type untracked struct {
	own   Commands
	other Commands // nil if there is none
	// answered tells an error that a server answered, undone one after which it is certain that nothing was done.
	answered, undone func(error) bool

	epoch time.Time
	until atomic.Int64 // since epoch, the other is not used
}

func (u *untracked) apart() bool { return u.other != nil }

// send has do send by one of them, and by the other if it is certain that nothing was sent. do returns why it failed.
func (u *untracked) send(do func(c Commands) error) {
	if u.other == nil || int64(time.Since(u.epoch)) < u.until.Load() {
		_ = do(u.own)
		return
	}
	err := do(u.other)
	if err == nil || u.answered(err) {
		return
	}
	u.until.Store(int64(time.Since(u.epoch) + shunned))
	if u.undone(err) {
		_ = do(u.own)
	}
}

func (u *untracked) Joint(ctx context.Context, a JointArgs, items []JointItem, out []JointReply) {
	u.send(func(c Commands) error {
		c.Joint(ctx, a, items, out)
		return out[0].Err // they went by one script
	})
}

func (u *untracked) Acquire(ctx context.Context, k AcquireKeys, a AcquireArgs) (value int64, err error) {
	u.send(func(c Commands) error {
		value, err = c.Acquire(ctx, k, a)
		return err
	})
	return value, err
}

func (u *untracked) Release(ctx context.Context, k ReleaseKeys, a ReleaseArgs) (value int64, err error) {
	u.send(func(c Commands) error {
		value, err = c.Release(ctx, k, a)
		return err
	})
	return value, err
}
