package memory_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/backend/memory"
)

func TestConformance(t *testing.T) {
	backendtest.RunInBubbles(t, func(*testing.T) backendtest.Store { return store{memory.New()} })
}

// store is a memory.Store as the suite wants it.
type store struct{ *memory.Store }

var errDown = errors.New("down for a test")

func (s store) Backend() backend.Backend { return s.Store }
func (s store) Cut()                     { s.SetDown(errDown); s.SetDown(nil) }
func (s store) Down()                    { s.SetDown(errDown) }
func (s store) Up()                      { s.SetDown(nil) }
func (s store) Connections() int         { return 0 }
func (s store) PermitsWithin()           {}

// Occupy takes the lock's name where the suite means its proclamation, which is a part of the lock.
func (s store) Occupy(name string) {
	if lock, is := strings.CutPrefix(name, "mortise:1:proclaim:{"); is {
		name = strings.TrimSuffix(lock, "}")
	}
	s.Store.Occupy(name)
}
