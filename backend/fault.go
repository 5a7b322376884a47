package backend

import "errors"

// ErrWrongKind is wrapped by the error of an operation that met a record of
// another kind: a read-write lock where a plain one was asked for, or a value
// that is no lock at all.
var ErrWrongKind = errors.New("the key holds something else than this kind of lock")

// ErrSessionClosed is wrapped by the error of operations on a closed session.
var ErrSessionClosed = errors.New("backend session closed")

// Fault is the failure of an operation, as a backend reports it.
type Fault struct {
	// Err is the cause, as the store or its client library gave it.
	Err error
	// Remedy is a short phrase that says what a person can do about it.
	Remedy string
	// MayHaveRun tells that the outcome is unknown: the operation may have taken
	// effect, or still may. It is false only where it is known not to have run.
	MayHaveRun bool
	// Temporary tells that the same request may succeed a little later.
	Temporary bool
}

func (f *Fault) Error() string {
	if f.Remedy == "" {
		return f.Err.Error()
	}
	return f.Err.Error() + " (" + f.Remedy + ")"
}

func (f *Fault) Unwrap() error { return f.Err }

// FaultOf finds the fault in err. An error that carries none is taken for the
// worst: it may have run, and may pass.
func FaultOf(err error) Fault {
	var f *Fault
	if errors.As(err, &f) {
		return *f
	}
	return Fault{Err: err, MayHaveRun: true, Temporary: true}
}
