package playground

import (
	"context"
	"sync"
)

// Ledger is the data that the lock protects: a balance. It knows nothing of locks. With fencing it refuses a write
// whose token is smaller than the largest token that has written; fencing needs no more.
type Ledger struct {
	tell func(Written)

	mu      sync.Mutex
	balance int
	newest  int64
	fenced  bool
}

// Write asks for a new balance.
type Write struct {
	Balance int   `json:"balance"`
	Token   int64 `json:"token"`
}

// Written is the outcome of a Write.
type Written struct {
	Write
	By       string `json:"by"`
	Was      int    `json:"was"`    // the balance before
	Newest   int64  `json:"newest"` // the largest token before
	Stale    bool   `json:"stale"`  // the token is smaller than Newest
	Accepted bool   `json:"accepted"`
}

// NewLedger makes a ledger without fencing. It calls tell for each write.
func NewLedger(balance int, tell func(Written)) *Ledger { return &Ledger{tell: tell, balance: balance} }

// SetFenced switches fencing on or off.
func (l *Ledger) SetFenced(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fenced = on
}

// Read returns the balance.
func (l *Ledger) Read() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.balance
}

func (l *Ledger) state() (balance int, newest int64, fenced bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.balance, l.newest, l.fenced
}

// write reports whether the balance was written.
func (l *Ledger) write(by string, w Write) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Written{Write: w, By: by, Was: l.balance, Newest: l.newest, Stale: w.Token < l.newest}
	r.Accepted = !r.Stale || !l.fenced
	if r.Accepted {
		l.balance, l.newest = w.Balance, max(l.newest, w.Token)
	}
	l.tell(r)
	return r.Accepted
}

// account is a service's access to the ledger.
type account struct{ link *Link }

func (a account) read(ctx context.Context) (int, error) {
	return call[any, int](ctx, a.link, "read", nil)
}

func (a account) write(ctx context.Context, w Write) (bool, error) {
	return call[Write, bool](ctx, a.link, "write", w)
}
