package backend

import (
	"context"
	"time"
)

// OperatorStore answers what an operator asks: what has a name, since when, and who waits for it.
// OperatorStore is a capability: [Capabilities.Operator]. An answer may be outdated on arrival, and is
// never the reason for a grant.
type OperatorStore interface {
	// Describe reads what has a name, of any kind. It answers ErrWrongKind if the name has data that is
	// none of the port's.
	Describe(ctx context.Context, r DescribeRequest) (Description, error)
}

// ListStore lists the locks that exist, for operators. ListStore is a capability: [Capabilities.List].
type ListStore interface {
	// List reads a part of the locks whose names begin with a prefix: those with an owner, whatever it did with its
	// lease, those that are reserved, and semaphores with permits in use. Other counts have no owner: a store need not
	// be able to tell a count from other data, and List leaves counts out.
	//
	// A lock that is there from the first request of a listing to the last is found, unless the store moves its data to
	// another server meanwhile. One that comes or goes meanwhile may be found or not, and a lock may be found twice.
	//
	// The work of a request, and the size of its reply, are bounded, however many locks there are. So a page may be
	// empty although it is not the last.
	List(ctx context.Context, r ListRequest) (ListPage, error)
}

// ListRequest asks for a page of a listing.
type ListRequest struct {
	// Prefix is any text, and may be empty.
	Prefix string
	// Cursor is ListPage.Next of the page before; empty for the first page.
	Cursor string
}

// ListPage is a page of a listing, in any order.
type ListPage struct {
	Locks []Listed
	// Next asks for the next page; empty if this is the last.
	Next string
}

// Listed is a lock in a listing. Its Description has no Queue.
type Listed struct {
	Name string
	Description
}

// DescribeRequest asks for what has a name.
type DescribeRequest struct {
	Name string
	// Entries is the largest number of waiting entries to describe; zero or more. A store may describe
	// fewer, if it describes a hundred.
	Entries int
}

// Description is what a store knows about a name. What it does not know is the zero value.
type Description struct {
	// Record is that of a lock, with the Kind KindLock, KindRead or KindWrite: the store need not know
	// which locks are fair.
	//
	// The Kind of a semaphore with permits in use is KindSemaphore: Held is set, Holds is the number of
	// permits in use, Owner the id of the permit whose lease ends last, and Remaining what is left of
	// it. The Kind of any other count is KindCountingSemaphore: Held is false, and Holds is the count.
	Record
	// Exists reports whether there is a record. The other fields may be set without one.
	Exists bool
	// Token is the last fencing token that was drawn for the name: the owner's, if it has one.
	Token int64
	// Since is when the owner got the lock, by the store's clock.
	Since time.Time
	// Waiting is the number of entries that wait, and Queue describes the first of them, in the order in
	// which they are served: an entry for each session with waiters, of a fair lock for each waiter.
	// Clients of other libraries have entries only where the library enrols them.
	Waiting int
	Queue   []Waiter
}

// Waiter is a waiting entry.
type Waiter struct {
	// Kind is what the entry waits for: KindFair, KindWrite for either side of a read-write lock, or KindSemaphore. It is
	// KindLock for a plain lock, and where the store does not know.
	Kind Kind
	// Owner is the owner that waits; empty if the store does not know. For a semaphore it is the ids of the permits,
	// joined by commas.
	Owner string
	// Session identifies the waiting session, in the store's own terms. Entries of one session have the
	// same; empty if the store does not know.
	Session string
	// Since is when the entry came, by the store's clock; zero if the store does not know.
	Since time.Time
}
