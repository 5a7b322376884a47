package heldcache

import (
	"sync/atomic"
	"time"
)

// shunned is how long the second connection is not used after a failure. The tracking connection is
// used instead: it is watched, and made again as soon as it breaks.
const shunned = time.Second

// Second chooses the connection for commands that need no tracking: the second connection, or the
// tracking connection if there is no second one, or if it failed lately. C is the commands of a
// client.
type Second[C any] struct {
	own, other C    // over the tracking connection; over the second one
	there      bool // there is a second one
	// answered reports whether an error is the server's answer; undone reports whether after an error
	// it is certain that nothing was done.
	answered, undone func(error) bool

	epoch time.Time
	until atomic.Int64 // the second connection is not used before this time, in nanoseconds since epoch
}

// NewSecond returns a Second for own, the commands over the tracking connection. answered reports
// whether an error is the server's answer, undone whether it is certain that nothing was done.
func NewSecond[C any](own C, answered, undone func(error) bool) *Second[C] {
	return &Second[C]{own: own, answered: answered, undone: undone, epoch: time.Now()}
}

// Use sets the commands over the second connection.
func (u *Second[C]) Use(other C) { u.other, u.there = other, true }

// Apart reports whether there is a second connection.
func (u *Second[C]) Apart() bool { return u.there }

// Commands returns the commands over the second connection. It returns those over the tracking connection if there
// is no second one, or for a second after a failure.
func (u *Second[C]) Commands() (c C, second bool) {
	if !u.there || int64(time.Since(u.epoch)) < u.until.Load() {
		return u.own, false
	}
	return u.other, true
}

// Failed notes err, the result of a command over the second connection. It reports whether to send the
// command again, over the tracking connection: the server did not answer, and certainly nothing was
// done.
func (u *Second[C]) Failed(err error) (again bool) {
	if err == nil || u.answered(err) {
		return false
	}
	u.until.Store(int64(time.Since(u.epoch) + shunned))
	return u.undone(err)
}
