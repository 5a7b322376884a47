// Package check has short forms of what tests say most often.
package check

import (
	"errors"
	"testing"
)

// ErrorIf notes an error if failed. The arguments are evaluated in any case.
func ErrorIf(t testing.TB, failed bool, format string, args ...any) {
	t.Helper()
	if failed {
		t.Errorf(format, args...)
	}
}

// FatalIf ends the test if failed. The arguments are evaluated in any case.
func FatalIf(t testing.TB, failed bool, format string, args ...any) {
	t.Helper()
	if failed {
		t.Fatalf(format, args...)
	}
}

// Equal notes an error if got is not want. The text has one verb, for got.
func Equal[T comparable](t testing.TB, text string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf(text+"; want %v", got, want)
	}
}

// NoError ends the test if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Done notes an error if err is not nil.
func Done(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Is notes an error if err does not wrap target.
func Is(t testing.TB, text string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got %v, want %v", text, err, target)
	}
}

// Err is the error of a call whose value does not matter.
func Err[T any](_ T, err error) error { return err }

// Got is what a call returned: a value and an error.
type Got[T any] struct {
	value T
	err   error
}

// Value keeps what a call returned, for In.
func Value[T any](v T, err error) Got[T] { return Got[T]{v, err} }

// In returns the value; it ends the test if there was an error.
func (g Got[T]) In(t testing.TB) T {
	t.Helper()
	NoError(t, g.err)
	return g.value
}
