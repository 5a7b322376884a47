package httplock

import (
	"testing"
	"time"
)

// SetAheadWait changes for how long bodies are read ahead, until the test ends.
func SetAheadWait(t *testing.T, d time.Duration) {
	before := aheadWait
	aheadWait = d
	t.Cleanup(func() { aheadWait = before })
}
