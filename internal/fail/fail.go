// Package fail has the errors of all layers: what errors.Is finds, and the form in which users see them.
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

// Errors of the layers among themselves.
var (
	// Closing: the client is shutting down; users see Closed.
	Closing = errors.New("the client is shutting down")
	// WaitOver is the cause of a wait's context when WithWait's time is over.
	WaitOver = errors.New("the time given by WithWait is over")
	// Barred: a store that lost its data has no vote for a while.
	Barred = fmt.Errorf("%w: the store is new, was restarted or lost its data, and has no vote until all leases "+
		"that it may have forgotten are over", NotAcquired)
	// NoVote: enough stores are barred.
	NoVote = errors.New("new, were restarted or lost their data, and have no vote")
	// Twice: a lease that is unlocked again.
	Twice = fmt.Errorf("%w: %w already; unlock each lease once", NotHeld, Released)
	// Zero: a client that New did not make.
	Zero = fmt.Errorf("%w: the Client is nil or a zero value; make it with mortise.New", Invalid)
	// NilContext: a call without a context.
	NilContext = fmt.Errorf("%w: the context is nil; use context.Background()", Invalid)
)

// Error has the fields of mortise.Error, which is what users get: see Public.
type Error struct {
	Op        string
	Name      string
	Remaining time.Duration
	Err       error
}

// Public makes an Error the one that package mortise exports, which sets it. That one's As method finds the
// Error again.
var Public = func(e *Error) error { return e }

// New is the error of an operation on a name.
func New(op, name string, err error) error { return Public(&Error{Op: op, Name: name, Err: err}) }

// Of finds the Error in err; nil if there is none.
func Of(err error) *Error {
	e, _ := errors.AsType[*Error](err)
	return e
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("mortise: ")
	b.WriteString(e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", Shorten(e.Name))
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if e.Remaining > 0 {
		fmt.Fprintf(&b, "; the holder's lease ends in %v unless renewed", e.Remaining.Round(time.Millisecond))
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Invalidf is an error that wraps Invalid.
func Invalidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{Invalid}, args...)...)
}

// Shorten keeps a hostile name from flooding a log.
func Shorten(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(name[:most], ""), len(name))
}

// CallerGone is the error of a call whose caller's context ended.
type CallerGone struct{ err, cause error }

// Gone is the CallerGone of a context that has ended.
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
	if e.cause != nil && e.cause != e.err {
		return fmt.Sprintf("%v: %v", e.err, e.cause)
	}
	return e.err.Error()
}

// Unwrap gives the context's error and its cause.
func (e *CallerGone) Unwrap() []error { return []error{e.err, e.cause} }

// FromStore puts the sentinel before a backend's error. Closed tells that the client's own context has ended.
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

// NotCallers hides from errors.Is that a context ended: commands run under the client's context, so the context
// error is the client library's own and not the caller's.
func NotCallers(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &library{err}
	}
	return err
}

// library is an error whose context errors are not the caller's.
type library struct{ error }

func (e *library) As(target any) bool { return errors.As(e.error, target) }

func (e *library) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(e.error, target)
}

// List is several errors on one line.
type List []error

func (l List) Error() string {
	texts := make([]string, len(l))
	for i, err := range l {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap gives the errors.
func (l List) Unwrap() []error { return l }
