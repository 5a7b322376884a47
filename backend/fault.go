package backend

import "errors"

// ErrWrongKind is wrapped by the error of an operation whose name holds a record of another kind,
// such as a read-write lock instead of a plain lock, or data that is not a lock.
var ErrWrongKind = errors.New("the key holds something else than this kind of lock")

// ErrSessionClosed is wrapped by the error of operations on a closed session.
var ErrSessionClosed = errors.New("backend session closed")

// Fault is the error of an operation: its cause, and what the engine may conclude.
type Fault struct {
	// Err is the cause, from the store or its client library.
	Err error
	// Remedy is a short phrase with the remedy for an operator.
	Remedy string
	// MayHaveRun reports that the outcome is unknown: the operation may have taken effect, or may
	// still do so. It is false only if the operation certainly has no effect.
	MayHaveRun bool
	// Temporary reports whether the same request may succeed a little later.
	Temporary bool
}

func (f *Fault) Error() string {
	if f.Remedy == "" {
		return f.Err.Error()
	}
	return f.Err.Error() + " (" + f.Remedy + ")"
}

func (f *Fault) Unwrap() error { return f.Err }

// FaultOf returns the Fault in err's chain. For an error without a Fault it assumes MayHaveRun and
// Temporary.
func FaultOf(err error) Fault {
	var f *Fault
	if errors.As(err, &f) {
		return *f
	}
	return Fault{Err: err, MayHaveRun: true, Temporary: true}
}
