package backend

import (
	"context"
	"time"
)

// ProclamationStore keeps a text that the owner of a lock gives: its address, say, for processes
// that do not hold the lock. It is a capability: [Capabilities.Proclamations]. It is about plain
// and fenced locks.
type ProclamationStore interface {
	// Proclaim keeps the text of the lock's owner in place of any other, and announces a change on
	// the topic of KindProclamation. An empty text removes what the owner gave. The same text again
	// is kept for longer, and not announced. Where r.Owner does not hold the lock, Proclaim changes
	// nothing and reports false.
	Proclaim(ctx context.Context, r ProclaimRequest) (bool, error)
	// Proclaimed reads the text of the owner that holds the lock now; zero if the lock is free, or
	// its owner has given no text.
	Proclaimed(ctx context.Context, name string) (Proclamation, error)
}

// MaxProclamation is the longest text in bytes. A longer one in the store is none.
const MaxProclamation = 256

// ProclaimRequest gives a text.
type ProclaimRequest struct {
	Name  string
	Owner string
	// Token is the owner's fencing token; zero if it has none.
	Token int64
	// Text is at most MaxProclamation bytes.
	Text string
	// Keep is for how long the store keeps the text at the most.
	Keep time.Duration
}

// Proclamation is the text of the owner that holds a lock.
type Proclamation struct {
	Owner string
	Token int64
	Text  string
	// Remaining is what is left of the owner's lease; negative if it has no end.
	Remaining time.Duration
}
