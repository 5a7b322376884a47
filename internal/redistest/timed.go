package redistest

import (
	"testing"

	"github.com/mortise-go/mortise/internal/redistest/timed"
)

// Machine knows when this machine was too busy to let goroutines go on: see [Timed].
type Machine = timed.Machine

// Timed is for a test that judges real time: see [timed.Test].
func Timed(t testing.TB) *Machine { return timed.Test(t) }

// Watch is Timed for all tests of a package. stop ends it.
func Watch() (m *Machine, stop func()) { return timed.Watch() }
