package engine

import (
	"testing"
	"unsafe"
)

// A Lock allocates one call and one tenure. The garbage collector's share of an uncontended Lock grows with their size
// classes: 192 bytes less were 4 % of the rate with 32 goroutines (docs/decisions/0042).
func TestACallAndATenureFitTheirSizeClasses(t *testing.T) {
	for _, x := range []struct {
		name       string
		size, want uintptr
	}{
		{"call", unsafe.Sizeof(call{}), 512},
		{"tenure", unsafe.Sizeof(tenure{}), 480},
		{"name", unsafe.Sizeof(name{}), 96},
	} {
		if x.size > x.want {
			t.Errorf("a %s has %d bytes, want at most %d", x.name, x.size, x.want)
		}
	}
}
