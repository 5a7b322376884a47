package main

import (
	"errors"

	"github.com/mortise-go/mortise"
)

// The exit codes, besides those of the command that run starts: sysexits.h where it has one.
const (
	codeUsage        = 64  // EX_USAGE
	codeUnavailable  = 69  // EX_UNAVAILABLE: the store
	codeInternal     = 70  // EX_SOFTWARE: the guardian has ended
	codeNotAcquired  = 75  // EX_TEMPFAIL
	codeLost         = 76  // EX_PROTOCOL: the lock was lost while the command ran
	codeNoPermission = 77  // EX_NOPERM
	codeNotExec      = 126 // as a shell
	codeNotFound     = 127
)

// coded is an error with the exit code of the program.
type coded struct {
	code int
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// codeOf returns the exit code for an error of the library.
func codeOf(err error) int {
	var c *coded
	switch {
	case err == nil:
		return 0
	case errors.As(err, &c):
		return c.code
	case errors.Is(err, mortise.ErrNotAcquired):
		return codeNotAcquired
	case errors.Is(err, mortise.ErrUnavailable):
		return codeUnavailable
	case errors.Is(err, mortise.ErrLost):
		return codeLost
	}
	return codeUsage
}
