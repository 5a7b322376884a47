package memory

import (
	"maps"
	"time"
)

// tokens draws fencing tokens: the last token of the name plus one, or the wall clock's milliseconds for a name without
// a last token.
type tokens struct {
	last map[string]int64
	// floor is the largest token of all forgotten names.
	floor int64
}

// mostTokens bounds the number of names in tokens.last. At the bound, next forgets all names.
const mostTokens = 1 << 14

func (k *tokens) next(name string) int64 {
	n, ok := k.last[name]
	if ok {
		n++
	} else {
		if len(k.last) >= mostTokens {
			k.fold()
		}
		n = max(time.Now().UnixMilli(), k.floor+1)
	}
	if k.last == nil {
		k.last = make(map[string]int64)
	}
	k.last[name] = n
	return n
}

// drawn returns the last token of name, or a number no smaller if the name was forgotten.
func (k *tokens) drawn(name string) int64 { return max(k.last[name], k.floor) }

// fold forgets all names. It keeps the largest token, so later tokens still rise.
func (k *tokens) fold() {
	for n := range maps.Values(k.last) {
		k.floor = max(k.floor, n)
	}
	clear(k.last)
}
