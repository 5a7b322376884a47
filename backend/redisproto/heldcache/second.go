package heldcache

import (
	"sync/atomic"
	"time"
)

// shunned is for how long the second connection is not used after it failed: the tracking
// connection is watched, and made again as soon as it breaks.
const shunned = time.Second

// Second sends commands without need of tracking over a second connection, if there is one. While
// the second connection fails, commands go over the tracking connection, and so does a repeated
// command. C is a client's commands.
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
// an error is a server's answer, undone whether an error means for certain that nothing was done.
func NewSecond[C any](own C, answered, undone func(error) bool) *Second[C] {
	return &Second[C]{own: own, answered: answered, undone: undone, epoch: time.Now()}
}

// Use sets the commands over the second connection.
func (u *Second[C]) Use(other C) { u.other, u.there = other, true }

// Apart reports whether there is a second connection.
func (u *Second[C]) Apart() bool { return u.there }

// Commands returns the commands over the second connection, or over the tracking connection where there is
// no second, or while the second fails.
func (u *Second[C]) Commands() (c C, second bool) {
	if !u.there || int64(time.Since(u.epoch)) < u.until.Load() {
		return u.own, false
	}
	return u.other, true
}

// Failed records err, the result of a command over the second connection. Failed reports whether
// the command must be sent over the tracking connection, because certainly nothing was done.
func (u *Second[C]) Failed(err error) (again bool) {
	if err == nil || u.answered(err) {
		return false
	}
	u.until.Store(int64(time.Since(u.epoch) + shunned))
	return u.undone(err)
}
