// Package fail has the errors of all layers: the sentinels for errors.Is, and the form in which users see errors.
package fail

//lint:file-ignore ST1012 the package name says that these are errors: fail.Lost

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// The sentinels, which package mortise exports and documents.
var (
	NotAcquired     = errors.New("not acquired")
	NotHeld         = errors.New("not held")
	Lost            = errors.New("lock lost")
	Released        = errors.New("lock released")
	Closed          = errors.New("client closed")
	Unavailable     = errors.New("store unavailable")
	WrongKind       = errors.New("wrong kind")
	InvalidName     = errors.New("invalid name")
	Invalid         = errors.New("invalid")
	NotReplicated   = errors.New("not replicated")
	DelegationEnded = errors.New("the delegation has ended")
)

// Errors that the layers pass to each other.
var (
	// Closing: the client is shutting down. Users get Closed instead.
	Closing = errors.New("the client is shutting down")
	// WaitOver is the cause in a wait's context that ended because WithWait's time is over.
	WaitOver = errors.New("the time given by WithWait is over")
	// Barred: a store that lost its data has no vote for a while.
	Barred = fmt.Errorf("%w: the store is new, was restarted or lost its data, and has no vote until all leases "+
		"that it may have forgotten are over", NotAcquired)
	// NoVote: so many stores are barred that a quorum fails.
	NoVote = errors.New("new, were restarted or lost their data, and have no vote")
	// Twice: the lease was unlocked before.
	Twice = fmt.Errorf("%w: already unlocked; unlock each lease once", Released)
	// Zero: the client was not made by New.
	Zero = fmt.Errorf("%w: the Client is nil or a zero value; make it with mortise.New", Invalid)
	// NilContext: a call without a context.
	NilContext = fmt.Errorf("%w: the context is nil; use context.Background()", Invalid)
	// NilLease: a call of a nil or zero lease.
	NilLease = fmt.Errorf("%w: the lease is nil; check the error that Lock returned", Invalid)
)

// Error has the fields of mortise.Error, the type that users get: see Public.
type Error struct {
	Op        string
	Name      string
	Owner     string
	Remaining time.Duration
	Err       error
}

// Public converts an Error into a mortise.Error, and Find returns the Error in err; nil if there is none. Package
// mortise sets both.
var (
	Public = func(e *Error) error { return e }
	Find   = func(err error) *Error { e, _ := errors.AsType[*Error](err); return e }
)

// New returns the error of an operation on a name.
func New(op, name string, err error) error {
	return Public(&Error{Op: op, Name: name, Err: Bare(name, err)})
}

// Bare returns an error with the text of err without the beginning that an Error has, for the text of another Error
// about the same name: errors.Is and errors.As find the same. Other errors, and those about another name, it returns
// unchanged.
func Bare(name string, err error) error {
	e := Of(err)
	if e == nil || e.Name != name || Public(e) != err { // in the third case err wraps e
		return err
	}
	return &bare{err, e}
}

type bare struct {
	error
	inner *Error
}

func (b *bare) Error() string { return b.inner.detail() }
func (b *bare) Unwrap() error { return b.error }

// Of returns the Error in err; nil if there is none.
func Of(err error) *Error {
	if e, is := err.(*Error); is {
		return e
	}
	return Find(err)
}

func (e *Error) Error() string {
	if e == nil {
		return "<nil>"
	}
	return "mortise: " + e.short()
}

// short returns the text without its first word.
func (e *Error) short() string {
	if e.Name == "" {
		return e.Op + ": " + e.detail()
	}
	return fmt.Sprintf("%s %q: %s", e.Op, Shorten(e.Name), e.detail())
}

// detail returns the text without the operation and the name.
func (e *Error) detail() string {
	var b strings.Builder
	fmt.Fprint(&b, e.Err)
	switch {
	case e.Owner != "" && e.Remaining > 0:
		fmt.Fprintf(&b, "; the lease of %q ends in %v unless renewed", Shorten(e.Owner), e.Remaining.Round(time.Millisecond))
	case e.Owner != "":
		fmt.Fprintf(&b, "; the holder is %q", Shorten(e.Owner))
	case 0 < e.Remaining && e.Remaining <= backend.Absence: // a reservation, perhaps
		fmt.Fprintf(&b, "; that ends in %v unless renewed", e.Remaining.Round(time.Millisecond))
	case e.Remaining > 0 && strings.HasSuffix(e.Op, "acquire"): // of a semaphore, which has several holders
		fmt.Fprintf(&b, "; the first permit in use ends in %v unless renewed", e.Remaining.Round(time.Millisecond))
	case e.Remaining > 0:
		fmt.Fprintf(&b, "; the holder's lease ends in %v unless renewed", e.Remaining.Round(time.Millisecond))
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Invalidf returns an error that wraps Invalid.
func Invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{Invalid}, args...)...)
}

// TickAhead is the error of a claim that finds the last started tick ahead of the store's clock, by at least so much.
func TickAhead(by time.Duration) error {
	return fmt.Errorf("%w: the last tick that was started is at least %v ahead of the store's clock, which is behind "+
		"now or was ahead then; ticks go on once the clock is there again: set the server's clock right; "+
		"docs/how-to/jobs.md says how to start ticks sooner", NotAcquired, by)
}

// Shorten cuts a long name, so that a hostile name does not flood a log.
func Shorten(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(name[:most], ""), len(name))
}

// CallerGone is the error of a call whose caller's context ended.
type CallerGone struct{ err, cause error }

// Gone returns the CallerGone of ctx, which has ended.
func Gone(ctx context.Context) error {
	return &CallerGone{err: ctx.Err(), cause: context.Cause(ctx)}
}

// IsGone reports whether err is, or wraps, a CallerGone.
func IsGone(err error) bool {
	_, gone := errors.AsType[*CallerGone](err)
	return gone
}

// WaitIsOver reports whether err is a CallerGone because WithWait's time is over.
func WaitIsOver(err error) bool {
	gone, is := errors.AsType[*CallerGone](err)
	return is && errors.Is(gone.cause, WaitOver)
}

func (e *CallerGone) Error() string {
	if x := Of(e.cause); x != nil && Public(x) == e.cause { // the context is that of a lease
		return fmt.Sprintf("%v: %s", e.err, x.short())
	}
	if e.cause != nil && e.cause != e.err {
		return fmt.Sprintf("%v: %v", e.err, e.cause)
	}
	return e.err.Error()
}

// Unwrap returns the context's error and its cause.
func (e *CallerGone) Unwrap() []error { return []error{e.err, e.cause} }

// Crowded is the NotAcquired of a call that is refused because too many calls wait already.
type Crowded struct{ why string }

// Crowdedf returns a Crowded with a reason.
func Crowdedf(format string, args ...any) error { return &Crowded{fmt.Sprintf(format, args...)} }

// IsCrowded reports whether err is, or wraps, a Crowded.
func IsCrowded(err error) bool {
	_, crowded := errors.AsType[*Crowded](err)
	return crowded
}

func (e *Crowded) Error() string { return NotAcquired.Error() + ": " + e.why }

// Unwrap returns NotAcquired.
func (e *Crowded) Unwrap() error { return NotAcquired }

// FromStore wraps a backend's error in its sentinel. Closed says that the client's own context has ended.
func FromStore(err error, closed bool) error {
	switch {
	case errors.Is(err, backend.ErrWrongKind):
		return fmt.Errorf("%w: %w", WrongKind, err)
	case errors.Is(err, backend.ErrSessionClosed), errors.Is(err, Closing):
		return Closed
	case IsGone(err):
		return err
	case closed:
		return fmt.Errorf("%w before the store answered: %w", Closed, NotCallers(err))
	}
	return fmt.Errorf("%w: %w", Unavailable, NotCallers(err))
}

// NotCallers hides the errors of contexts in err from errors.Is. Commands run under the client's context, so such an
// error comes from the client library, not from the caller's context.
func NotCallers(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &library{err}
	}
	return err
}

// library is an error that hides context errors from errors.Is.
type library struct{ error }

func (e *library) As(target any) bool { return errors.As(e.error, target) }

func (e *library) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.error, target)
}

// List is several errors; its text is one line.
type List []error

func (l List) Error() string {
	texts := make([]string, len(l))
	for i, err := range l {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors.
func (l List) Unwrap() []error { return l }
