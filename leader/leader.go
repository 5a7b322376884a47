// Package leader elects one process of a fleet; the leader leads until it stops, dies or is cut
// off:
//
//	err := leader.Run(ctx, client, "scheduler", func(ctx context.Context, term leader.Term) error {
//		return schedule(ctx, term.Token) // ctx ends the moment leadership is lost
//	})
//
// The leader is the process with the lock of the name. So leadership has exactly the guarantees of
// the lock: see docs/explanation/guarantees.md. In particular a stalled leader may, by its own
// view, lead for a moment longer. [Term.Token] rises with each term; a store that refuses tokens
// smaller than the largest so far is written to by the newest leader alone.
//
// Any process can follow the changes of leaders: see [Observe].
package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/campaign"
	"github.com/mortise-go/mortise/internal/fail"
)

// StepDown is returned by a leader's function to give leadership up and campaign again, behind the
// waiting candidates. StepDown is no failure, as fs.SkipDir is none.
//
//lint:ignore ST1012 see above
var StepDown = errors.New("step down and campaign again")

// Term is a time of leading.
type Term struct {
	// Identity is the leader's name: [Identity].
	Identity string
	// Token is the term's number, the fencing token of the lock: a later term has a larger number.
	// Send Token along with each write, and let the written store refuse tokens smaller than the
	// largest so far.
	Token int64
	lease *mortise.Lease
}

// Err is nil while the process leads, and otherwise gives the reason for the end:
// [mortise.Lease.Err]. Err compares the clocks itself, so Err is right even when a pause of the
// process kept the context from ending in time. Err costs no command.
func (t Term) Err() error { return t.lease.Err() }

// Option changes a candidacy.
type Option func(*candidate)

type candidate struct {
	name, identity string
	onError        func(error)
	locker         mortise.Locker
	fn             func(context.Context, Term) error
}

// Identity is the name of the candidate as leader, in [Leader] and [Term]: an address for
// followers, say. Identity is 1 to 256 bytes of UTF-8 without control characters. The default is
// the host's name and the process id, "host/pid".
func Identity(text string) Option { return func(c *candidate) { c.identity = text } }

// OnError calls f with each error that does not end Run: the store is unavailable, or leadership
// was lost ([mortise.ErrLost], with fn's own error). f is called by one goroutine at a time. With or
// without OnError, the client logs lost leadership and a store that is unavailable
// ([mortise.WithLogger]). f is not nil.
func OnError(f func(err error)) Option { return func(c *candidate) { c.onError = f } }

const (
	// again is the interval at which a leader repeats its proclamation. The store may have lost the
	// proclamation, and keeps it for an hour only.
	again = time.Minute
	// resigning bounds how long a resignation waits for the store. The release is sent in any case.
	resigning = 5 * time.Second
	// A campaign that ends sooner counts as a failure: a function that steps down at once must not keep the store busy.
	brief = time.Second
	// The pause after a failure doubles with each failure, from soonest to latest.
	soonest, latest = 50 * time.Millisecond, 5 * time.Second
)

// Run campaigns for leadership under a name, calls fn while leading, and resigns after fn returns.
// The wait for leadership is the wait of Lock: without polling, and next after the leader's release
// or the end of its lease.
//
// fn's ctx is a child of Run's and ends the moment leadership is lost; fn must return then. The
// next leader is elected without a wait for fn. fn's result decides how Run continues:
//
//   - Leadership was lost meanwhile, whatever fn returned: Run calls [OnError], and campaigns
//     again.
//   - [StepDown], or an error that wraps StepDown: Run resigns, and campaigns again behind the
//     waiting candidates. If it took less than a second to wait for leadership and to lead, Run
//     pauses first, as after a failure of the store: 50 ms at most the first time, then twice as long
//     each time, up to 5 s.
//   - nil: the work is done. Run resigns and returns nil. Another candidate leads next: a fleet
//     whose processes all return nil does the work once in each process.
//   - Any other error: Run resigns and returns the error.
//
// When ctx ends, Run waits for the return of fn, resigns, and returns an error that wraps ctx's
// own, beside fn's error if different. If fn panics, Run resigns first.
//
// With a backend without proclamations Run leads, and followers get [mortise.ErrInvalid].
//
// Run goes on while the store is unavailable ([OnError]). After a Shutdown of the client, Run
// returns [mortise.ErrClosed]; end ctx before Shutdown, because Shutdown waits for the leader.
// [mortise.ErrInvalid], [mortise.ErrInvalidName] and [mortise.ErrWrongKind] are returned at once.
//
// l is a [*mortise.Client] or its [mortise.Client.With]; a test passes a client on memory, or a mock.
// The lock is a fenced lock with the client's watchdog timeout: after the death of the leader, the
// next process leads within this time. With a client whose [mortise.WithDefaults] have a
// [mortise.WithMaxHold], leadership is lost when a term has lasted for so long. Run within fn, under
// its ctx and the same name, is [mortise.ErrInvalid].
//
// Cost: a Lock and an Unlock for each term, two commands to tell followers and one each minute, and
// the renewals of the lease. A waiting candidate costs the same as a waiter.
func Run(ctx context.Context, l mortise.Locker, name string, fn func(ctx context.Context, term Term) error,
	opts ...Option) error {
	x := candidate{name: name, identity: defaultIdentity(), onError: func(error) {}, locker: l, fn: fn}
	if ctx == nil || l == nil || fn == nil {
		return fail.New("lead", name, fail.Invalidf("the context, the Locker and the function must not be nil"))
	}
	err := x.apply(opts)
	if err != nil {
		return fail.New("lead", name, err)
	}
	for failures := 0; ; {
		began := time.Now()
		done, err := x.campaign(ctx)
		switch {
		case ctx.Err() != nil:
			return x.ended(ctx, err)
		case done:
			return err
		case err != nil:
			x.onError(err)
		}
		if time.Since(began) >= brief && !errors.Is(err, mortise.ErrUnavailable) {
			failures = 0
			continue
		}
		sleep(ctx, backoff(failures))
		failures++
	}
}

func (x *candidate) apply(opts []Option) error {
	for _, o := range opts {
		if o == nil {
			return fail.Invalidf("a nil Option; omit it")
		}
		o(x)
	}
	switch {
	case x.onError == nil:
		return fail.Invalidf("OnError(nil); omit the option to drop the errors")
	case !valid(x.identity):
		return fail.Invalidf("Identity(%q): 1 to 256 bytes of UTF-8 without control characters", fail.Shorten(x.identity))
	}
	return nil
}

// defaultIdentity returns the host's name and the process id.
func defaultIdentity() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return fmt.Sprintf("%.200s/%d", host, os.Getpid())
}

func valid(identity string) bool {
	return identity != "" && len(identity) <= 256 && utf8.ValidString(identity) &&
		!strings.ContainsFunc(identity, unicode.IsControl)
}

// patience is the wait of one Lock of a candidate. It replaces the Locker's default wait.
const patience = 30 * 24 * time.Hour

// campaign waits for leadership and leads. If done is set, Run returns err. Otherwise Run campaigns
// again, and err is the reason; nil after StepDown, and after a wait without success.
func (x *candidate) campaign(ctx context.Context) (done bool, err error) {
	ctx = campaign.Context(ctx)
	lease, err := x.locker.Lock(ctx, x.name, mortise.Fenced(), mortise.NonReentrant(), mortise.WithWait(patience))
	switch {
	case errors.Is(err, mortise.ErrNotAcquired):
		return false, nil
	case err != nil:
		return !errors.Is(err, mortise.ErrUnavailable), err
	}
	resigned := false
	resign := func() error { resigned = true; return x.resign(ctx, lease) }
	defer func() {
		if !resigned { // a panic, or nothing to lead
			_ = resign()
		}
	}()
	err = Proclaim(ctx, lease, x.identity)
	if err != nil && !errors.Is(err, mortise.ErrInvalid) { // ErrInvalid: no proclamations, lead unseen
		again := errors.Is(err, mortise.ErrUnavailable) || errors.Is(err, mortise.ErrLost)
		return !again, err
	}
	err = x.lead(lease)
	lost := lease.Err()
	if released := resign(); lost == nil && errors.Is(released, mortise.ErrLost) {
		lost = released // before fn returned: the client had not noticed
	}
	closed := errors.Is(lost, mortise.ErrClosed)
	switch {
	case closed || errors.Is(lost, mortise.ErrLost):
		switch {
		case err == nil || onlyEnded(err, context.Canceled):
		case errors.Is(err, lost): // the context's cause, perhaps beside another error
			lost = err
		default:
			lost = fmt.Errorf("%w; the leader's function returned: %w", lost, err)
		}
		return closed, lost
	case errors.Is(err, StepDown):
		return false, nil
	}
	return true, err
}

// lead calls fn. Meanwhile a goroutine repeats the proclamation.
func (x *candidate) lead(lease *mortise.Lease) error {
	token := lease.Token()
	ctx, stop := context.WithCancel(lease.Context())
	told := make(chan struct{})
	go func() {
		defer close(told)
		for sleep(ctx, again) {
			if err := Proclaim(ctx, lease, x.identity); errors.Is(err, mortise.ErrUnavailable) {
				x.onError(err)
			}
		}
	}()
	defer func() { stop(); <-told }()
	return x.fn(campaign.Won(lease.Context()), Term{x.identity, token, lease})
}

// resign gives leadership up, and returns the error of Unlock. The client repeats a failed release until the lease
// ends.
func (x *candidate) resign(ctx context.Context, lease *mortise.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resigning)
	defer cancel()
	err := lease.Unlock(ctx) // it removes the proclamation: followers learn of the resignation at once
	if errors.Is(err, mortise.ErrUnavailable) {
		x.onError(err)
	}
	return err
}

// ended returns the error of Run after the end of ctx. err is the error of fn, or of the campaign.
func (x *candidate) ended(ctx context.Context, err error) error {
	gone := fail.Gone(ctx)
	if err == nil || onlyEnded(err, ctx.Err()) || errors.Is(err, StepDown) {
		return fail.New("lead", x.name, gone)
	}
	return fail.New("lead", x.name, fmt.Errorf("%w; %w", gone, err))
}

// onlyEnded reports whether err is a context's error, perhaps with texts around it. A joined error counts as the
// function's own.
func onlyEnded(err, end error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if _, gone := err.(*fail.CallerGone); err == end || gone && errors.Is(err, end) {
			return true
		}
	}
	return false
}

// backoff returns the pause after n + 1 failures in a row.
func backoff(n int) time.Duration {
	d := min(soonest<<min(n, 10), latest)
	return d/2 + rand.N(d/2+1)
}

// sleep pauses for d, or until ctx ends. It reports whether ctx is still live.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
