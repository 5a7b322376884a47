// Package once runs a function at fixed intervals, in one process of a fleet at each tick:
//
//	err := once.Every(ctx, client, "reports", time.Minute, func(ctx context.Context, at time.Time) {
//		sendReport(ctx, at)
//	})
//
// All processes of the fleet call Every with the same name and interval. Each tick is started at
// most once among them, by the store's clock: the clocks of the processes do not matter.
//
// # Ticks
//
// The ticks are the multiples of the interval since the Unix epoch, which was a Thursday, in UTC:
// an interval of a minute has one at each full minute, one of 24 hours at midnight, one of seven
// days on Thursdays. [Offset] moves them: 24 hours with Offset(3*time.Hour) has one at 03:00 UTC.
// fn gets the tick's time, which rises from tick to tick in all processes; so at.UnixMilli() can
// serve as a fencing token for what fn writes.
//
// A name that the store does not know begins with the next tick, also after the store was emptied:
// whether the newest one was started is not known then. With an interval of a day the first run may
// be a day away; call the function itself for a run at the start of the program.
//
// # At most once
//
// A process claims a tick with one command, and then calls fn. So a tick is not started where the
// process dies between the two, or where the reply to its claim is lost until the next tick is
// claimed. A process that repeats a claim after a lost reply is told that it has the tick. Once
// started, a tick is not started again, whatever becomes of fn: what must be done at least once
// belongs into a queue of jobs.
//
// Two things can start a tick twice. A store may lose the last claim and keep the one before: a
// Redis replica that takes over and has not heard of it, as with locks, or a Redis restored from an
// older file. And a Redis user with write access to the key can set it back.
//
// # Missed ticks, late ticks, long runs
//
// By default the newest tick is started as long as the next one is not due, and those before it are
// dropped: after an outage of an hour, a job that runs each minute runs once. [CatchUp] starts
// those that were missed, too, and [MaxLate] drops ticks that are late.
//
// Every calls fn on the goroutine of its caller, so runs do not overlap in a process: ticks that
// are due meanwhile go to other processes. In the fleet they do overlap where a run takes longer
// than the interval. If they must not, fn takes a lock; the example shows how.
//
// fn returns no error: a run that fails does not end the schedule, and fn logs its failure or
// repeats its work. A panic of fn is one in the caller of Every; the tick stays started.
//
// # Changing the interval
//
// While processes of two versions run with two intervals, the ticks of both are started, each at
// most once. Later ones only: once the 12:00 of an hourly schedule was started, the 00:00 of a
// daily one is not.
package once

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/fail"
)

// Claimer claims ticks. [*mortise.Client] does.
type Claimer interface {
	ClaimTick(ctx context.Context, name string, r mortise.TickRequest) (mortise.Tick, error)
}

// Option changes a schedule. A value out of bounds is refused by Every with [mortise.ErrInvalid].
type Option func(*schedule)

type schedule struct {
	claim   mortise.TickRequest
	onError func(error)
}

// CatchUp starts ticks that no process started: the n before the newest one, the oldest first. n is
// zero, the default, to 1,000, and n intervals are 366 days at the most. The processes of a fleet
// share them, so that their runs overlap. All processes are to have the same n.
func CatchUp(n int) Option { return func(s *schedule) { s.claim.CatchUp = n } }

// MaxLate drops a tick that is not started within d after its time. d is positive, whole
// milliseconds. By default a tick may be late by an interval, and by CatchUp's number of them
// besides.
func MaxLate(d time.Duration) Option {
	return func(s *schedule) {
		if s.claim.MaxLate = d; d == 0 {
			s.claim.MaxLate = -1 // is refused
		}
	}
}

// Offset moves the ticks by d, which is zero or more and less than the interval, in whole milliseconds.
func Offset(d time.Duration) Option { return func(s *schedule) { s.claim.Offset = d } }

// OnError has f called with each error after which Every goes on: the store failed, and is asked
// again within 5 seconds; or the store's clock was set back behind the last tick that was started,
// and ticks wait for it. f is called on the goroutine of Every. By default these errors are
// dropped.
func OnError(f func(err error)) Option {
	return func(s *schedule) {
		if f != nil {
			s.onError = f
		}
	}
}

const (
	// longest is how long a process relies on its own clock to tell when a tick is due.
	longest = time.Minute
	// The pause after a store that failed doubles from soonest to latest.
	soonest, latest = 50 * time.Millisecond, 5 * time.Second
)

// Every calls fn at each tick of interval that this process claims, until ctx ends. See the
// package's documentation for what a tick is, and what becomes of those that are missed. interval
// is 10 ms to 366 days, in whole milliseconds. The name follows the rules of lock names, and shares
// nothing with the lock of that name.
//
// fn's ctx is that of Every. When ctx ends while fn runs, Every returns after fn has.
//
// Every returns an error always: one that wraps ctx's own when that ends; [mortise.ErrInvalid],
// [mortise.ErrInvalidName],
// [mortise.ErrWrongKind] or [mortise.ErrClosed]. It goes on while the store is unavailable ([OnError]).
//
// Cost: one command for each tick in each process, and one each minute.
func Every(ctx context.Context, c Claimer, name string, interval time.Duration,
	fn func(ctx context.Context, at time.Time), opts ...Option) error {
	s := schedule{claim: mortise.TickRequest{ID: rand.Text(), Interval: interval}, onError: func(error) {}}
	for _, o := range opts {
		if o != nil {
			o(&s)
		}
	}
	if ctx == nil || c == nil || fn == nil {
		return fail.New("every", name, fail.Invalidf("the context, the Claimer and the function must not be nil"))
	}
	for failures := 0; ; {
		tick, err := c.ClaimTick(ctx, name, s.claim)
		answered := time.Now()
		var pause time.Duration
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, mortise.ErrUnavailable): // the outcome may be unknown: the claim is repeated as it is
			s.onError(err)
			pause = backoff(failures, interval)
			failures++
		case err != nil:
			return err
		default:
			failures, s.claim.ID = 0, rand.Text()
			if tick.Claimed {
				fn(ctx, tick.At)
			} else if tick.Next > interval {
				s.onError(setBack(name, tick.Next-interval))
			}
			pause = time.Until(answered.Add(min(tick.Next, longest)))
		}
		if !sleep(ctx, pause) {
			return fail.New("every", name, fail.Gone(ctx))
		}
	}
}

// backoff is the pause after a store that failed for the n-th time in a row, from zero.
func backoff(n int, interval time.Duration) time.Duration {
	d := min(soonest<<min(n, 10), max(interval, soonest), latest)
	return d/2 + mathrand.N(d/2+1)
}

func setBack(name string, by time.Duration) error {
	return fail.New("every", name, fmt.Errorf("the last tick that was started is at least %v ahead of the "+
		"store's clock, which was set back; ticks go on once it is there again; set the server's clock right", by))
}

// sleep reports whether ctx did not end meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
