// Package retry decides whether a command that failed is sent again, and when.
package retry

import "time"

const (
	// Patience is how long a call goes on repeating a command that fails for a reason that may pass, all told.
	Patience = 5 * time.Second
	// attempts is how often a command is sent in the caller's time.
	attempts = 3
)

// Policy repeats commands that fail for a reason that may pass.
type Policy struct {
	// Temporary classifies errors: whether the same request may succeed a little later.
	Temporary func(error) bool
	// Done ends pauses.
	Done <-chan struct{}
}

// Again reports whether a command that failed for the n-th time, from zero, is worth repeating, and pauses before
// it says so. First is when it was first sent.
func (p Policy) Again(err error, n int, first time.Time) bool {
	if n+1 >= attempts || !p.Temporary(err) || time.Since(first) > Patience/2 {
		return false
	}
	return p.pause(10 * time.Millisecond << (2 * n))
}

// Do sends a command, and again while it is worth that. It returns the last error.
func (p Policy) Do(send func() error) error {
	first := time.Now()
	return p.Resume(send(), first, send)
}

// Resume is Do for a command that was sent before, at first, and came to err.
func (p Policy) Resume(err error, first time.Time, send func() error) error {
	for n := 0; err != nil && p.Again(err, n, first); n++ {
		err = send()
	}
	return err
}

// pause waits; it is false if Done was closed meanwhile.
func (p Policy) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.Done:
		return false
	}
}

// Backoff is pauses that double.
type Backoff struct {
	Every time.Duration // the next pause
	Most  time.Duration // what it grows to
}

// Next is the pause before the next attempt.
func (b *Backoff) Next() time.Duration {
	d := b.Every
	b.Every = min(2*b.Every, b.Most)
	return d
}

// Slow has the pauses grow to a twentieth of d, if that is longer: after an outage there may be thousands of
// requests whose effect is looked for during d.
func (b *Backoff) Slow(d time.Duration) { b.Most = max(b.Most, d/20) }

// After is the pause after the n-th failure in a row, from one: it doubles from d to at most most.
func After(n int, d, most time.Duration) time.Duration { return min(d<<min(n, 10), most) }
