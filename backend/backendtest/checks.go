package backendtest

import (
	"cmp"
	"context"
	"fmt"
	"testing"
)

// checks are short forms of statements that end a test or note an error.
type checks struct{ *testing.T }

// errorIf notes an error if failed.
func (e checks) errorIf(failed bool, format string, args ...any) {
	e.Helper()
	if failed {
		e.Errorf(format, args...)
	}
}

// fatalIf ends the test if failed.
func (e checks) fatalIf(failed bool, format string, args ...any) {
	e.Helper()
	if failed {
		e.Fatalf(format, args...)
	}
}

// equal notes an error if got is not want. The text has one verb, for got.
func equal[T comparable](e testing.TB, text string, got, want T) {
	e.Helper()
	if got != want {
		e.Errorf(text+"; want %v", got, want)
	}
}

// must ends the test with an error.
func (e checks) must(what string, err error) {
	e.Helper()
	e.fatalIf(err != nil, "%s: %v", what, err)
}

// got is what a call returned.
type got[T any] struct {
	value T
	err   error
}

// value keeps what a call returned, for in.
func value[T any](v T, err error) got[T] { return got[T]{v, err} }

// in returns the value, or ends the test if there was an error.
func (g got[T]) in(e testing.TB) T {
	e.Helper()
	if g.err != nil {
		e.Fatal(g.err)
	}
	return g.value
}

// ok checks what must be answered with true.
func (e checks) ok(is bool, err error) {
	e.Helper()
	if !is || err != nil {
		e.Fatalf("got %v, %v, want true", is, err)
	}
}

// done checks what must succeed.
func (e checks) done(what string, err error) {
	e.Helper()
	if err != nil {
		e.Errorf("%s: %v", what, err)
	}
}

// atLeast notes an error if got is less than least. The text has one verb, for got.
func atLeast[T cmp.Ordered](e testing.TB, text string, got, least T) {
	e.Helper()
	if got < least {
		e.Errorf(text+"; want at least %v", got, least)
	}
}

// atMost notes an error if got is more than most. The text has one verb, for got.
func atMost[T cmp.Ordered](e testing.TB, text string, got, most T) {
	e.Helper()
	if got > most {
		e.Errorf(text+"; want at most %v", got, most)
	}
}

// available checks how many permits are free.
func (e checks) available(of interface {
	Available(context.Context) (int, error)
}, want int) {
	e.Helper()
	n, err := of.Available(background)
	e.errorIf(n != want || err != nil, "%d permits are free, %v; want %d", n, err, want)
}

// freed waits until so many permits are free. What a call was granted that had got permits otherwise, or had left, is
// given back in the background.
func (e checks) freed(of interface {
	Available(context.Context) (int, error)
}, want int) {
	e.Helper()
	e.until(fmt.Sprint(want, " permits are free"), func() bool {
		n, err := of.Available(background)
		return n == want && err == nil
	})
}
