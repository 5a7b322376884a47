package heldcache

import (
	"sync/atomic"
	"time"
)

// shunned is for how long the second connection is not used after it failed: the tracking
// connection is watched, and made again as soon as it breaks.
const shunned = time.Second

// Second sends what need not be tracked over a second connection, if there is one. While that
// fails, commands go over the tracking connection, as a command that is sent again does. C is a
// client's commands.
type Second[C any] struct {
	own, other C
	there      bool
	// answered reports an error that a server answered, undone an error after which it is certain
	// that nothing was done.
	answered, undone func(error) bool

	epoch time.Time
	until atomic.Int64 // since epoch, the second is not used
}

// NewSecond makes a Second for the commands over the tracking connection. answered reports whether
// an error is a server's answer, undone whether it means for certain that nothing was done.
func NewSecond[C any](own C, answered, undone func(error) bool) *Second[C] {
	return &Second[C]{own: own, answered: answered, undone: undone, epoch: time.Now()}
}

// Use sets the commands over the second connection.
func (u *Second[C]) Use(other C) { u.other, u.there = other, true }

// Apart reports whether there is a second connection.
func (u *Second[C]) Apart() bool { return u.there }

// Send has do send by one of them, and by the other if it is certain that nothing was sent. do
// returns why it failed.
func (u *Second[C]) Send(do func(c C) error) {
	if !u.there || int64(time.Since(u.epoch)) < u.until.Load() {
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
