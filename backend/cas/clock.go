package cas

import (
	"sync"
	"time"
)

// jump is the difference between what passed by the store's clock, and by this process's, from which on the store's
// clock was set. Drift is the part of a time by which the two may differ besides.
const (
	jump  = 500 * time.Millisecond
	drift = 100
	// anchorKept is how long a reading of the store's clock tells when a grant was made.
	anchorKept = 99 * time.Second
	// grantSlack is how much later than by this process's clock a grant may have been made: more is another clock.
	grantSlack = 20 * time.Millisecond
)

// reading is a reading of the store's clock: at, between sent and got.
type reading struct {
	sent, got time.Time
	at        time.Duration
}

// clock is what a session knows of the store's clock.
type clock struct {
	mu   sync.Mutex
	last reading
	// since is the store's time from which on the clock was not set, as far as was seen; zero: always.
	since time.Duration
}

// note notes a reading; none if at is zero.
func (c *clock) note(r reading) {
	if r.at == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.last; l.at != 0 {
		slack := jump + r.got.Sub(l.sent)/drift
		least, most := l.at+r.sent.Sub(l.got), l.at+r.got.Sub(l.sent)
		switch {
		case r.at < least-slack, r.at > most+slack:
			c.since = r.at
		case r.at < l.at+r.got.Sub(l.got): // an earlier reading tells more
			if r.got.Sub(l.sent) < anchorKept/2 {
				return
			}
		}
	}
	c.last = r
}

// now returns what the store's clock has reached at least; false if it was not read yet.
func (c *clock) now() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.at + time.Since(c.last.got), c.last.at != 0
}

// nowFor returns now for a version with a stamp that was first seen at a time of this process's clock.
func (c *clock) nowFor(stamp time.Duration, seen time.Time) time.Duration {
	now, _ := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch aged := stamp + time.Since(seen); {
	case stamp == 0:
		return now
	case stamp < c.since || now < aged: // the clock was set, forward or back
		return aged
	}
	return now
}

// granted returns when a lease began by this process's clock, at the earliest, that was written at a time of the
// store's clock. It returns a time long over if that is not known.
func (c *clock) granted(stamp time.Duration, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, passed := c.last, stamp-c.last.at
	switch {
	case l.at == 0, stamp == 0, now.Sub(l.sent) > anchorKept, passed > now.Sub(l.sent)+grantSlack:
		return now.Add(-time.Hour)
	}
	if from := l.sent.Add(passed - max(passed, -passed)/drift); from.Before(now) {
		return from
	}
	return now
}
