package backend

import (
	"context"
	"time"
)

// ProclamationStore keeps a text of a lock's owner, such as its address, that other processes can
// read. The lock is of KindLock or KindFair. ProclamationStore is a capability:
// [Capabilities.Proclamations].
type ProclamationStore interface {
	// Proclaim sets the text of the lock's owner, in place of any other text, and announces a
	// change on the topic of KindProclamation. An empty text removes the owner's text. The same
	// text a second time is kept for r.Keep again, and not announced. If r.Owner does not hold the
	// lock, Proclaim changes nothing and reports false. A request whose Number is smaller than that of
	// an executed request of the same owner changes nothing and reports true: it arrived late. The
	// store remembers the Number for the Keep of that request, also if the request removed the text.
	Proclaim(ctx context.Context, r ProclaimRequest) (bool, error)
	// Proclaimed returns the proclamation of the lock's present owner; the zero Proclamation if the
	// lock is free, or if its owner has no text. For both methods, an owner whose lease is over does not
	// hold the lock, even if owners that entered the lock after it still do.
	Proclaimed(ctx context.Context, name string) (Proclamation, error)
}

// MaxProclamation is the maximum length of a text in bytes. A store ignores a longer text that
// another program has written.
const MaxProclamation = 256

// ProclaimRequest sets the text of a lock's owner.
type ProclaimRequest struct {
	Name  string
	Owner string
	// Token is the owner's fencing token; zero if there is none.
	Token int64
	// Text is at most MaxProclamation bytes.
	Text string
	// Number orders the requests of an owner: a later request has a larger one, a repeated request the
	// same.
	Number int64
	// Keep bounds the time for which the store keeps the text.
	Keep time.Duration
}

// Proclamation is the text of a lock's owner.
type Proclamation struct {
	Owner string
	Token int64
	Text  string
	// Remaining is the remaining time of the owner's lease; negative if the record has no end.
	Remaining time.Duration
}
