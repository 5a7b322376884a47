// Package retry decides whether a failed command is sent again, and when.
package retry

import (
	"context"
	"time"
)

const (
	// Patience bounds the time for which a command is repeated: later, only a command that has failed just once is
	// sent again. It is longer than three time-outs of go-redis (3 s), and as long as two of rueidis (5 s).
	Patience = 10 * time.Second
	// quickFailures is how often a command fails at most, if it fails at once each time: a server that is down, or that
	// refuses commands, is reported within 100 ms.
	quickFailures = 3
	// quick is how long an attempt takes at least to count as one that timed out. Such attempts are bounded only by the
	// time.
	quick = 250 * time.Millisecond
)

// Policy repeats commands that fail temporarily.
type Policy struct {
	// Temporary reports whether the same request may succeed a little later.
	Temporary func(error) bool
	// Done ends pauses, and so the repeats.
	Done <-chan struct{}
}

// Attempts are the attempts of one command.
type Attempts struct {
	policy   Policy
	first    time.Time // when the command was first sent
	last     time.Time // when the last attempt was sent
	failures int
	quick    int // failures that came at once
}

// Since returns the attempts of a command that was first sent at first.
func (p Policy) Since(first time.Time) Attempts {
	return Attempts{policy: p, first: first, last: first}
}

// Again reports whether to repeat the command after its last attempt returned err. Before it reports true, it pauses
// for 10 ms, and for four times as long after each failure that came at once. It reports false when ctx has ended: the
// caller's context, with its wait. A command that timed out is repeated at least once while ctx allows it.
func (a *Attempts) Again(ctx context.Context, err error) bool {
	now := time.Now()
	a.failures++
	if now.Sub(a.last) < quick {
		a.quick++
	}
	switch {
	case !a.policy.Temporary(err), ctx.Err() != nil:
		return false
	case a.quick >= quickFailures, a.failures > 1 && now.Sub(a.first) >= Patience:
		return false
	case !a.policy.pause(ctx, 10*time.Millisecond<<(2*max(a.quick-1, 0))):
		return false
	}
	a.last = time.Now()
	return true
}

// Do sends a command, and repeats it as Again allows. It returns the last error.
func (p Policy) Do(ctx context.Context, send func() error) error {
	first := time.Now()
	return p.Resume(ctx, send(), first, send)
}

// Resume is Do for a command whose first attempt, sent at first, returned err.
func (p Policy) Resume(ctx context.Context, err error, first time.Time, send func() error) error {
	if err == nil {
		return nil
	}
	for a := p.Since(first); err != nil && a.Again(ctx, err); {
		err = send()
	}
	return err
}

// pause waits for d. It reports false if ctx ended, or Done was closed, before.
func (p Policy) pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
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
