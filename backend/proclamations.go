package backend

import (
	"context"
	"time"
)

// ProclamationStore keeps a text from the owner of a plain or fenced lock, such as an address, for
// processes without the lock. ProclamationStore is a capability: [Capabilities.Proclamations].
type ProclamationStore interface {
	// Proclaim sets the text of the lock's owner, in place of any other text, and announces a
	// change on the topic of KindProclamation. An empty text removes the owner's text. The same
	// text again is kept for longer, and not announced. If r.Owner does not hold the lock, Proclaim
	// changes nothing and reports false.
	Proclaim(ctx context.Context, r ProclaimRequest) (bool, error)
	// Proclaimed reads the text of the present owner of the lock; zero if the lock is free, or its
	// owner has given no text.
	Proclaimed(ctx context.Context, name string) (Proclamation, error)
}

// MaxProclamation is the maximum length of a text in bytes. A longer text in the store counts as
// none.
const MaxProclamation = 256

// ProclaimRequest gives a text.
type ProclaimRequest struct {
	Name  string
	Owner string
	// Token is the owner's fencing token; zero if there is none.
	Token int64
	// Text is at most MaxProclamation bytes.
	Text string
	// Keep bounds the time for which the store keeps the text.
	Keep time.Duration
}

// Proclamation is the text of a lock's owner.
type Proclamation struct {
	Owner string
	Token int64
	Text  string
	// Remaining is the remaining time of the owner's lease; negative without an end.
	Remaining time.Duration
}
