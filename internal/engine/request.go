package engine

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/localqueue"
)

// Request is what one call asks for.
type Request struct {
	Name string
	localqueue.Wish
	// Family is the record that it is about.
	Family       backend.Kind
	Try          bool
	Fenced       bool
	NonReentrant bool
	Resumed      bool          // it has been waiting elsewhere, so what fails now is an interruption
	Part         bool          // of a Lock of several, which waits though this does not
	Polling      time.Duration // the first pause between asks; 0: releases are announced
	Lease        time.Duration // 0: the watchdog's
	Wait         time.Duration // 0: as long as the context
	MaxHold      time.Duration // 0: no bound
	Replicas     Replicas
	Age          *backend.Age // how old the store must be; nil: any age
	Limit        Limit
}

// Limit is how many permits a semaphore is to have; zero: what the store says.
type Limit struct {
	N int64
	// Declared notes that the store has answered a request with N. Until then N is set though the store says another.
	Declared *atomic.Bool
}

// undeclared reports whether the store is to hear of the limit.
func (l *Limit) undeclared() bool { return l.N > 0 && !l.Declared.Load() }

// Replicas is how many replicas are to have a grant, and for how long they are waited for.
type Replicas struct {
	N       int
	Timeout time.Duration
}

// Op is what errors call the request.
func (r *Request) Op() string {
	verb := "lock"
	switch r.Family {
	case backend.KindSemaphore, backend.KindCountingSemaphore:
		verb = "acquire"
	case backend.KindCountDownLatch:
		verb = "wait"
	case backend.KindProclamation:
		verb = "proclamations"
	}
	if r.Try && !r.Part {
		return "try" + verb
	}
	return verb
}

// Fail is the error of the request.
func (r *Request) Fail(err error) error { return fail.New(r.Op(), r.Name, err) }

// Refused is the error of a request that does not wait.
func (r *Request) Refused(remaining time.Duration) error {
	return r.notAcquired(remaining, r.missing())
}

// missing says what stands in the way, after "still".
func (r *Request) missing() string {
	switch r.Family {
	case backend.KindSemaphore:
		if r.Wants == 1 {
			return "without a free permit"
		}
		fallthrough
	case backend.KindCountingSemaphore:
		return fmt.Sprintf("with fewer than %d free permits", r.Wants)
	case backend.KindCountDownLatch:
		return "above zero"
	}
	return "held by another owner"
}

func (r *Request) notAcquired(remaining time.Duration, why string) error {
	if r.Family == backend.KindCountingSemaphore || r.Family == backend.KindCountDownLatch {
		remaining = 0 // there is no lease that could end
	}
	return fail.Public(&fail.Error{
		Op: r.Op(), Name: r.Name, Remaining: remaining, Err: fmt.Errorf("%w: %s", fail.NotAcquired, why),
	})
}

// GaveUp is the error of a request whose wait ended with err. Left is what is left of the holder's lease,
// negative if the store has not said, and last the store's last failure.
func (r *Request) GaveUp(err error, left time.Duration, last error) error {
	switch {
	case errors.Is(err, fail.Closing):
		return r.Fail(fail.Closed)
	case !fail.WaitIsOver(err):
		return r.Fail(err)
	case last != nil:
		return r.Fail(fmt.Errorf("%w: still so after %v: %w", fail.Unavailable, r.Wait, last))
	case left < 0:
		return r.Fail(fmt.Errorf("%w: the store gave no answer in time, with a wait of %v", fail.Unavailable, r.Wait))
	}
	return r.stillHeld(left)
}

// stillHeld is the error of a request whose wait is over.
func (r *Request) stillHeld(left time.Duration) error {
	return r.notAcquired(left, fmt.Sprintf("still %s after %v", r.missing(), r.Wait))
}

// topicOf is where releases of a kind of lock are announced, and whose queue its waiters stand in. The two sides of a
// read-write lock share one.
func topicOf(family backend.Kind, name string) backend.Topic {
	switch family {
	case backend.KindRead:
		family = backend.KindWrite
	case backend.KindFair, backend.KindDelegated: // where the holder is; waiters have topics of their own
		family = backend.KindLock
	}
	return backend.Topic{Kind: family, Name: name}
}

func lockTopic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }
