package lease

import (
	"math"
	"time"
)

// Delegation names a hold of a lock, so that a call from another process can enter the lock under it. The fields are
// those of delegation.Delegation.
type Delegation struct {
	Name    string
	Owner   string
	Hold    int
	Token   int64
	Expires time.Time
}

// Depth returns the depth, in a local queue, of a call under the delegation; 0 without one. Calls under several holds
// of one owner wait in one queue, and the store lets in only a call under the innermost: the one with the highest
// number.
func (x *Delegation) Depth() int32 {
	if x == nil {
		return 0
	}
	return int32(min(x.Hold, math.MaxInt32))
}
