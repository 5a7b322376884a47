package backend

import "context"

// Leaver is a store whose callers can leave the methods Acquire, Enter, Enrol, Release and Serve: when
// ctx ends, or if it had ended before the call, the method returns a [*Left] at once, and the
// operation goes on. Without a Leaver, and for requests with a Replication, the engine calls the
// method in a goroutine of its own, so that its caller can leave. Leaver is a capability:
// [Capabilities.Leaver].
type Leaver interface {
	// Leaves reports whether callers can leave the methods of a kind, as far as the session knows
	// now. Leaves does no I/O.
	Leaves(k Kind) bool
}

// Left is the error of an operation whose caller left: the operation goes on.
type Left[R any] struct {
	// Wait waits for the end of the operation, and returns its outcome. Wait is called once.
	Wait func() (R, error)
}

func (*Left[R]) Error() string { return "the context of the call ended before the store answered" }

func (*Left[R]) Unwrap() error { return context.Canceled }
