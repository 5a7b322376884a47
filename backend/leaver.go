package backend

import "context"

// Leaver is a store whose Acquire, Enter, Enrol, Release and Serve allow the caller to leave: when
// ctx ends, or had ended before the call, the method returns a [*Left] at once, and the operation
// goes on. With another Store, the caller runs the method in a goroutine of its own in order to
// leave, and so does a caller with a Replication.
type Leaver interface {
	// Leaves reports whether a kind allows to leave, by present knowledge. Leaves does no I/O.
	Leaves(k Kind) bool
}

// Left is the error of an operation whose caller left.
type Left[R any] struct {
	// Wait waits for the end of the operation and returns its outcome. Wait is called once.
	Wait func() (R, error)
}

func (*Left[R]) Error() string { return "the caller's context ended before the store answered" }

func (*Left[R]) Unwrap() error { return context.Canceled }
