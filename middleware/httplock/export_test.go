package httplock

import (
	"net/http"
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

// ReadAhead reads a body ahead, and returns how much memory it takes.
func ReadAhead(w http.ResponseWriter, r *http.Request) (memory int, whole bool) {
	ahead, whole := readAhead(w, r)
	return cap(ahead.Body.(*aheadBody).data), whole
}
