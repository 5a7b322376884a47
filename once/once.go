// Package once runs a function at fixed intervals, at each tick in one process of a fleet:
//
//	err := once.Every(ctx, client, "reports", time.Minute, func(ctx context.Context, at time.Time) {
//		sendReport(ctx, at)
//	})
//
// All processes of the fleet call Every with the same name and interval. Each tick is started at
// most once in the fleet, by the store's clock: the clocks of the processes do not matter.
//
// # Ticks
//
// The ticks are the multiples of the interval since the Unix epoch, a Thursday, in UTC: an interval
// of a minute has a tick at each full minute, an interval of 24 hours at midnight, an interval of
// seven days on Thursdays. [Offset] moves the ticks: 24 hours with Offset(3*time.Hour) has a tick
// at 03:00 UTC. fn gets the tick's time, which rises from tick to tick in all processes; so
// at.UnixMilli() can serve as a fencing token for fn's writes.
//
// A name unknown to the store begins with the next tick, also after the store was emptied, because
// the store cannot know whether the newest tick was started. The store forgets a name of which no tick
// was started for 30 days and two intervals, and CatchUp's number of intervals besides: for example,
// because all processes were stopped. With an interval of a day the first run may be a day away; call
// the function itself for a run at the start of the program.
//
// # At most once
//
// A process claims a tick with one command, and then calls fn. So a tick is not started if the
// process dies or the ctx of Every ends between the two steps, or if the reply to its claim is
// lost until the next tick is claimed. A process that repeats a claim after a lost reply gets the
// tick. If the repeated claim was answered, and the first request reaches the store only when the next
// tick is due, the late request takes this tick, which is then not started.
//
// Once started, a tick is not started again, whatever the outcome of fn: work with an at-least-once
// requirement belongs into a job queue.
//
// If the store's clock is set back, or was ahead for a while and is right again, the last started tick
// is in the clock's future, and no tick starts until the clock is there: the ticks before it cannot be
// told from started ones, and fn's times rise. Every asks again within 5 seconds, so ticks go on as soon
// as the clock is right. docs/how-to/jobs.md says how to start ticks sooner, if the clock was ahead.
//
// Two faults can start a tick twice. A store may lose the last claim and keep the claim before: a
// Redis replica promoted without the last claim, as with locks, or a Redis restored from an older
// file. And a Redis user with write access to the key can set the key back.
//
// # Missed ticks, late ticks, long runs
//
// By default the newest tick is started as long as the next tick is not due, and earlier ticks are
// dropped: after an outage of an hour, a job at each minute runs once. [CatchUp] starts missed
// ticks, too, and [MaxLate] drops late ticks.
//
// Every calls fn on the goroutine of its caller, so runs do not overlap in a process: ticks due
// meanwhile go to other processes. In the fleet, runs longer than the interval do overlap. To
// prevent the overlap, fn takes a lock; the example shows how.
//
// fn returns no error: a failed run does not end the schedule, and fn logs its failure or repeats
// its work. A panic of fn is a panic in the caller of Every; the tick stays started.
//
// # Changing the interval
//
// While processes of two versions run with two intervals, the ticks of both are started, each at
// most once, and in rising order only: once the 12:00 of an hourly schedule was started, the 00:00
// of a daily schedule is not.
package once

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/fail"
)

// Option changes a schedule. Every refuses a value out of bounds with [mortise.ErrInvalid].
type Option func(*schedule)

type schedule struct {
	name    string
	claim   TickRequest
	onError func(error)
	err     error // of an option
}

// CatchUp starts missed ticks: the n before the newest tick, the oldest first. n is zero, the
// default, to 1,000, and n intervals are 366 days at the most. The processes of a fleet share the
// missed ticks, so their runs overlap. All processes must have the same n.
func CatchUp(n int) Option { return func(s *schedule) { s.claim.CatchUp = n } }

// MaxLate drops a tick not claimed within d after its time. d is positive, whole milliseconds. By
// default a tick may be late by an interval, and by CatchUp's number of intervals besides.
func MaxLate(d time.Duration) Option {
	return func(s *schedule) {
		if s.claim.MaxLate = d; d <= 0 {
			s.err = fail.Invalidf("MaxLate(%v): positive; omit the option, and a tick may be late by an interval", d)
		}
	}
}

// Offset moves the ticks by d: zero or more, less than the interval, in whole milliseconds.
func Offset(d time.Duration) Option { return func(s *schedule) { s.claim.Offset = d } }

// OnError calls f with each error that does not end Every: the store failed, and is asked again
// within 5 seconds; or the last started tick is ahead of the store's clock, and ticks wait for the
// clock: an error that wraps [mortise.ErrNotAcquired]. f is called on the goroutine of Every. With or
// without OnError, the client logs these errors ([mortise.WithLogger]) and tells its observer of
// them. f is not nil.
func OnError(f func(err error)) Option {
	return func(s *schedule) {
		if s.onError = f; f == nil {
			s.err = fail.Invalidf("OnError(nil); omit the option to drop the errors")
		}
	}
}

const (
	// longest bounds the sleep before a claim: the process's own clock measures the sleep.
	longest = time.Minute
	// While the last started tick is ahead of the store's clock, a claim is repeated after an interval, within these
	// bounds: the clock may be set right at any time.
	aheadSoonest, aheadLatest = time.Second, 5 * time.Second
	// The pause after a failure of the store doubles with each failure, from soonest to latest.
	soonest, latest = 50 * time.Millisecond, 5 * time.Second
)

// Every calls fn at each tick of interval claimed by this process, until ctx ends. See the
// package's documentation for ticks, and for missed ticks. interval is 10 ms to 366 days, in whole
// milliseconds. The name follows the rules of lock names, and shares nothing with the lock of the
// same name.
//
// fn's ctx is the ctx of Every. When ctx ends during a run of fn, Every returns after fn has.
//
// Every always returns an error: an error that wraps ctx's own after the end of ctx;
// [mortise.ErrInvalid], [mortise.ErrInvalidName], [mortise.ErrWrongKind] or [mortise.ErrClosed].
// Every goes on while the store is unavailable ([OnError]).
//
// Cost: one command for each tick in each process, and one each minute; one each 5 seconds while the
// last started tick is ahead of the store's clock.
func Every(ctx context.Context, c *mortise.Client, name string, interval time.Duration,
	fn func(ctx context.Context, at time.Time), opts ...Option) error {
	if ctx == nil || c == nil || fn == nil {
		return fail.New("every", name, fail.Invalidf("the context, the client and the function must not be nil"))
	}
	s, err := newSchedule(name, interval, opts)
	if err != nil {
		return err
	}
	return s.run(ctx, func(r TickRequest) (Tick, error) { return TryTick(ctx, c, name, r) }, fn)
}

func newSchedule(name string, interval time.Duration, opts []Option) (*schedule, error) {
	s := &schedule{name: name, claim: TickRequest{ID: rand.Text(), Interval: interval}, onError: func(error) {}}
	for _, o := range opts {
		if o == nil {
			return nil, fail.New("every", name, fail.Invalidf("a nil Option; omit it"))
		}
		o(s)
	}
	if s.err != nil {
		return nil, fail.New("every", name, s.err)
	}
	return s, nil
}

// run calls fn at each tick that claim is granted, until ctx ends.
func (s *schedule) run(
	ctx context.Context, claim func(TickRequest) (Tick, error), fn func(ctx context.Context, at time.Time),
) error {
	for failures := 0; ; {
		tick, err := claim(s.claim)
		answered := time.Now()
		var pause time.Duration
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, mortise.ErrUnavailable): // perhaps of unknown outcome: repeat the claim with the same ID
			s.onError(err)
			pause = backoff(failures, s.claim.Interval)
			failures++
		case err != nil:
			return err
		default:
			failures, s.claim.ID = 0, rand.Text()
			most := longest
			if tick.Claimed {
				fn(ctx, tick.At)
			} else if ahead := tick.Next - s.claim.Interval; ahead > 0 {
				s.onError(fail.New("every", s.name, fail.TickAhead(ahead)))
				most = min(max(s.claim.Interval, aheadSoonest), aheadLatest)
			}
			pause = time.Until(answered.Add(min(tick.Next, most)))
		}
		if !sleep(ctx, pause) {
			return fail.New("every", s.name, fail.Gone(ctx))
		}
	}
}

// backoff returns the pause after n + 1 failures of the store in a row.
func backoff(n int, interval time.Duration) time.Duration {
	d := min(soonest<<min(n, 10), max(interval, soonest), latest)
	return d/2 + mathrand.N(d/2+1)
}

// sleep pauses for d, or until ctx ends. It reports whether ctx is still live.
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
