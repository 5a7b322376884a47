package clienttest

import (
	"math"
	"testing"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
)

// Redis counts in doubles inside of scripts: a count near the end of int64 came back negative,
// which is an open latch.
func TestALatchsCountIsBounded(t *testing.T) {
	c := on(t, memory.New())
	wants(t, errorOf(latch.New(c, "l").TrySet(t.Context(), math.MaxInt64)), ErrInvalid)
	set, err := latch.New(c, "l").TrySet(t.Context(), 1<<53)
	if err != nil || !set {
		t.Error(set, err)
	}
}
