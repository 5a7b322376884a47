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

// SetReadWait changes for how long a read may go on after the loss, until the test ends.
func SetReadWait(t *testing.T, d time.Duration) {
	before := readWait
	readWait = d
	t.Cleanup(func() { readWait = before })
}

// LastRest is lastRest.
const LastRest = lastRest
