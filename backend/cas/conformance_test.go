package cas_test

import (
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/backend/cas/castest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestConformance(t *testing.T) {
	all := func(string) bool { return true }
	backendtest.RunSomeInBubbles(t, func(*testing.T) backendtest.Store { return store{castest.NewMemory()} }, all)
}

func TestConformanceWithoutAClock(t *testing.T) {
	check.Long(t)
	chosen := func(name string) bool {
		return name != "Port_SomeThousandPermitsThatEndAtOnceComeBackAtOnce" // long, and the same with a clock
	}
	backendtest.RunSomeInBubbles(t, func(*testing.T) backendtest.Store { return store{castest.NewClockless()} }, chosen)
}

// store is a castest.Memory as the suite wants it.
type store struct{ *castest.Memory }

func (s store) Delete(name string) { s.Set(name, nil) }
func (s store) Occupy(name string) { s.Set(keyOf(name), []byte("data of another program")) }
func (s store) Connections() int   { return 0 }
func (s store) OneValue()          {}

// keyOf returns the key that has what the suite calls name: a proclamation is a part of its lock's value.
func keyOf(name string) string {
	if lock, is := strings.CutPrefix(name, "mortise:1:proclaim:{"); is {
		return strings.TrimSuffix(lock, "}")
	}
	return name
}
