package backend

import "context"

// BatchStore takes and releases several locks in one step. It is a capability:
// [Capabilities.Batch]. Its requests are for plain locks.
type BatchStore interface {
	// Groups splits names into those that one AcquireAll may take together: a group is
	// the indexes of its names, and each name is in one; no names are no groups. It returns at once.
	// While it is not known yet what the store can do, groups are smaller.
	Groups(names []string) [][]int
	// AcquireAll takes all locks, each as Acquire would, or none. The names are of one group.
	// Where it refuses, no reply is Granted, and those of the locks that stand in the way
	// have a Remaining other than zero; one at least has. The same requests a second time,
	// while the owners hold, change nothing and are granted again; that some of them
	// hold already does not matter. Unasked allows to refuse, naming one lock at least,
	// without asking. A name that comes twice is an error, and nothing is done.
	//
	// An error that is about one of the requests, [ErrWrongKind] for one, wraps a
	// [*RequestError]. It goes before a refusal.
	AcquireAll(ctx context.Context, in []AcquireRequest) ([]AcquireReply, error)
	// ReleaseAll is Release for each request. They are independent: one that fails
	// spoils no other, and they may be of several groups. The result of in[i] goes to out[i];
	// the two have one length.
	ReleaseAll(ctx context.Context, in []ReleaseRequest, out []ReleaseResult)
}

// ReleaseResult answers one request of ReleaseAll.
type ReleaseResult struct {
	Held bool // as in ReleaseReply
	Err  error
}

// RequestError tells which of several requests an error is about.
type RequestError struct {
	Index int
	Err   error
}

func (e *RequestError) Error() string { return e.Err.Error() }
func (e *RequestError) Unwrap() error { return e.Err }
