package heldcache

import (
	"hash/maphash"
	"sync/atomic"
)

// freed counts the releases of this process by the hash of the name. All caches of the process share it: a
// caller that was told of a release by one client may ask another client, whose invalidation is still on its
// way. Names that share a count, and servers that share a name, cost a request now and then.
var freed [1 << 14]atomic.Uint32

var seed = maphash.MakeSeed()

// generation is a count of freed, and its value at a time.
type generation struct {
	of    uint16
	value uint32
}

func freedOf(name string) generation {
	of := uint16(maphash.String(seed, name) % uint64(len(freed)))
	return generation{of, freed[of].Load()}
}

// last reports whether no release was counted since.
func (g generation) last() bool { return freed[g.of].Load() == g.value }

func noteFreed(name string) { freed[freedOf(name).of].Add(1) }
