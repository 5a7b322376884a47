package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/localqueue"
)

// Request is what one call asks for: a lock, permits, or a count.
type Request struct {
	Name string
	localqueue.Wish
	// Family is the kind that the user asked for. The kind of the record may be another: topicOf.
	Family       backend.Kind
	Try          bool
	Fenced       bool
	NonReentrant bool
	Resumed      bool          // its caller has waited before: it sits out a temporary failure
	Part         bool          // the call is part of a LockAll that waits, even if this request only tries
	Polling      time.Duration // the first pause between requests; 0: the call does not poll, releases are announced to it
	Lease        time.Duration // 0: the watchdog renews the lease
	Wait         time.Duration // the longest wait; 0: as long as the context
	MaxHold      time.Duration // 0: no bound
	Replicas     Replicas
	Age          *backend.Age // the least age of the store; nil: any age
	Limit        *Limit       // of a semaphore; nil for other kinds
}

// Replicas says how many replicas are to acknowledge a grant, and for how long the store waits for them.
type Replicas struct {
	N       int
	Timeout time.Duration
}

// Op returns the name of the operation in errors.
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

// Fail returns err as the error of the request.
func (r *Request) Fail(err error) error { return fail.New(r.Op(), r.Name, err) }

// TTL returns the lease that the request asks the store for, with a watchdog timeout.
func (r *Request) TTL(watchdog time.Duration) time.Duration {
	switch {
	case r.Lease > 0:
		return r.Lease
	case r.MaxHold > 0:
		return min(watchdog, clock.Outlasting(r.MaxHold))
	}
	return watchdog
}

// Refused returns the error of a request that does not wait. Remaining is the rest of the holder's lease.
func (r *Request) Refused(remaining time.Duration) error {
	return r.notAcquired(remaining, r.missing(remaining))
}

// missing returns what an error says of the lock after "still": why the request cannot be granted. Left is the rest of
// the holder's lease; zero if unknown.
func (r *Request) missing(left time.Duration) string {
	switch r.Family {
	case backend.KindSemaphore:
		if r.Wants == 1 {
			return "no permit free for this call"
		}
		fallthrough
	case backend.KindCountingSemaphore:
		return fmt.Sprintf("fewer than %d permits free for this call", r.Wants)
	case backend.KindCountDownLatch:
		return "above zero"
	}
	// A store's refusal does not tell a holder from an attempt that is released unless replicas acknowledge it, nor from
	// the reservation for a waiter, which lasts for backend.Absence at most.
	held := "held by another owner"
	if r.Replicas.N > 0 {
		held += ", or by a call that waits for its replicas"
	}
	if 0 <= left && left <= backend.Absence {
		held += ", or reserved for the next waiter"
	}
	return held
}

func (r *Request) notAcquired(remaining time.Duration, why string) error {
	return r.refusal(remaining, fmt.Errorf("%w: %s", fail.NotAcquired, why))
}

// Crowded returns the error of a request that WithMaxWaiters refuses. Left is the rest of the holder's lease; zero if
// unknown.
func (r *Request) Crowded(waiters int, left time.Duration) error {
	return r.refusal(left, fail.Crowdedf("%d calls of this process wait already, and WithMaxWaiters(%d) allows no more; "+
		"try again later", waiters, r.MaxWaiters))
}

func (r *Request) refusal(remaining time.Duration, err error) error {
	if r.Family == backend.KindCountingSemaphore || r.Family == backend.KindCountDownLatch {
		remaining = 0 // a count has no lease
	}
	return fail.Public(&fail.Error{Op: r.Op(), Name: r.Name, Remaining: remaining, Err: err})
}

// endless is the rest of a lease that has no end, for GaveUp.
const endless = time.Duration(clock.Never)

// GaveUp returns the error of a request whose wait ended with err. Left is the rest of the holder's lease, negative if
// the store has given no answer. Last is the store's last failure; nil if an answer came after it.
// Unanswered returns an error that says why the store has given no answer; nil if that is not known.
func (r *Request) GaveUp(err error, left time.Duration, last error, unanswered func() error) error {
	switch {
	case errors.Is(err, fail.Closing):
		return r.Fail(fail.Closed)
	case !fail.WaitIsOver(err):
		return r.Fail(err)
	case last != nil:
		return r.Fail(fmt.Errorf("%w: still so after %v: %w", fail.Unavailable, r.Wait, last))
	case left < 0:
		if why := unanswered(); why != nil {
			return r.Fail(fmt.Errorf("%w: no answer in time, with a wait of %v: %w", fail.Unavailable, r.Wait, why))
		}
		return r.Fail(fmt.Errorf("%w: the store gave no answer in time, with a wait of %v", fail.Unavailable, r.Wait))
	case left == endless:
		left = -1 // as Error.Remaining says it
	}
	return r.stillHeld(left)
}

// stillHeld returns the error of a request whose wait is over while the lock is held.
func (r *Request) stillHeld(left time.Duration) error {
	return r.notAcquired(left, fmt.Sprintf("still %s after %v", r.missing(left), r.Wait))
}

// topicOf returns the topic of a lock's record: releases are announced there. The sides of a read-write lock share the
// topic of KindWrite. Waiters for a fair lock, and under a delegation, have topics of their own: see call.topic.
func topicOf(family backend.Kind, name string) backend.Topic {
	switch family {
	case backend.KindRead:
		family = backend.KindWrite
	case backend.KindFair, backend.KindDelegated: // in the plain lock's record
		family = backend.KindLock
	}
	return backend.Topic{Kind: family, Name: name}
}

func lockTopic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }
