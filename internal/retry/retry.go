// Package retry decides whether a failed command is sent again, and when.
package retry

import "time"

const (
	// Patience bounds the time for which a temporary failure is retried. Again starts no attempt after half
	// of it.
	Patience = 5 * time.Second
	// attempts is how often a command is sent at most while its caller waits.
	attempts = 3
)

// Policy repeats commands that fail temporarily.
type Policy struct {
	// Temporary reports whether the same request may succeed a little later.
	Temporary func(error) bool
	// Done ends pauses, and so the repeats.
	Done <-chan struct{}
}

// Again reports whether to repeat a command after its n-th failure, n from zero; before it reports true, it pauses for
// 10 ms << 2n. First is when the command was first sent.
func (p Policy) Again(err error, n int, first time.Time) bool {
	if n+1 >= attempts || !p.Temporary(err) || time.Since(first) > Patience/2 {
		return false
	}
	return p.pause(10 * time.Millisecond << (2 * n))
}

// Do sends a command, and repeats it as Again allows. It returns the last error.
func (p Policy) Do(send func() error) error {
	first := time.Now()
	return p.Resume(send(), first, send)
}

// Resume is Do for a command whose first attempt, sent at first, returned err.
func (p Policy) Resume(err error, first time.Time, send func() error) error {
	for n := 0; err != nil && p.Again(err, n, first); n++ {
		err = send()
	}
	return err
}

// pause waits for d. It reports false if Done was closed before.
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

// Backoff is a series of pauses that double.
type Backoff struct {
	Every time.Duration // the next pause
	Most  time.Duration // the longest pause
}

// Next returns the pause before the next attempt.
func (b *Backoff) Next() time.Duration {
	d := b.Every
	b.Every = min(2*b.Every, b.Most)
	return d
}

// Slow lets the pauses grow to a twentieth of d, if that is longer than Most. It is for requests that are repeated for
// d: after an outage there may be thousands of them.
func (b *Backoff) Slow(d time.Duration) { b.Most = max(b.Most, d/20) }

// After returns the pause after the n-th failure in a row, n from one: d << n, and at most most.
func After(n int, d, most time.Duration) time.Duration { return min(d<<min(n, 10), most) }
