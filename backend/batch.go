package backend

import "context"

// BatchStore takes and releases several plain locks in one step. BatchStore is a capability:
// [Capabilities.Batch].
type BatchStore interface {
	// Groups splits names into groups for AcquireAll: a group is the indexes of its names, and each
	// name is in exactly one group; no names are no groups. Groups returns at once. Before the
	// session knows the server, groups may be smaller than necessary.
	Groups(names []string) [][]int
	// AcquireAll takes all locks, each as Acquire would, or none. The names belong to one group. In
	// a refusal, no reply is Granted. The replies for the locks of other owners have a Remaining
	// other than zero; there is at least one. With Unasked the session may refuse without a
	// request. A duplicate name is an error, and nothing is done.
	//
	// The same requests a second time, while the owners hold all or some of the locks, are granted
	// again, and do not change the locks that the owners hold.
	//
	// An error about a single request, such as [ErrWrongKind], wraps a [*RequestError], and takes
	// precedence over a refusal.
	AcquireAll(ctx context.Context, in []AcquireRequest) ([]AcquireReply, error)
	// ReleaseAll is Release for each request. Requests are independent: a failed request does not
	// affect the others, and several groups are allowed. The result of in[i] goes to out[i]; in and
	// out have the same length.
	ReleaseAll(ctx context.Context, in []ReleaseRequest, out []ReleaseResult)
}

// ReleaseResult answers a request of ReleaseAll.
type ReleaseResult struct {
	Held bool // as in ReleaseReply
	Err  error
}

// RequestError is an error about one of several requests: that of the Index.
type RequestError struct {
	Index int
	Err   error
}

func (e *RequestError) Error() string { return e.Err.Error() }
func (e *RequestError) Unwrap() error { return e.Err }
