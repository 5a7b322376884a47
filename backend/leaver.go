package backend

import "context"

// Leaver is a store whose Acquire, Enter, Enrol, Release and Serve can be left: when their ctx ends, also if it had
// before the call, they return a [*Left] at once, and the operation goes on. A caller of another
// Store that wants to leave calls it in a goroutine of its own, and so does one that asks for replicas.
type Leaver interface {
	// Leaves tells whether that is so for a kind, as far as is known now. It does no I/O.
	Leaves(k Kind) bool
}

// Left is the error of an operation that was left.
type Left[R any] struct {
	// Wait waits until it is over and returns what became of it. It is called once.
	Wait func() (R, error)
}

func (*Left[R]) Error() string { return "the caller's context ended before the store answered" }

func (*Left[R]) Unwrap() error { return context.Canceled }
