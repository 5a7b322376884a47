package memory

import (
	"slices"

	"github.com/mortise-go/mortise/backend"
)

// A fair lock and the plain lock of its name have one record, and a queue each. The queues take turns. A turn has as
// many tenures as there are clients in the queue, longestTurn at most.
const longestTurn = 8

// clients is how many clients the first places in a fair lock's queue belong to.
func clients(line []place) int {
	all := make(map[string]bool, longestTurn)
	for _, p := range line[:min(len(line), longestTurn)] {
		all[clientOf(p.owner)] = true
	}
	return len(all)
}

// fairWaiters is what a record is reserved for that is kept for the waiters for the fair lock.
var fairWaiters = entry{number: 1}

// keep keeps a free lock for the waiters for the fair lock if one of them can be reached. That one is told, and has a
// moment to come.
func (k queues) keep(name string) bool {
	s := k.store
	told := func(p place) bool { return s.watchers.first(name, p.owner) }
	if s.records[name] != nil || s.down != nil || !slices.ContainsFunc(s.places[name], told) {
		return false
	}
	s.put(&record{name: name, reserved: fairWaiters}, backend.Absence)
	return true
}

// freed serves a plain lock whose record has gone. It reports whether an entry is to ask: now, or when the fair waiters
// had time to come.
func (k queues) freed(name string) bool {
	left := k.turns[name] + 1
	delete(k.turns, name)
	switch {
	case left < 0 && k.first(name).session != nil:
		k.turns[name] = left
	case k.keep(name):
		k.turns[name] = clients(k.store.places[name])
		return k.tellFirst(name, backend.Absence)
	}
	return k.serve(name)
}

// freedFair serves a fair lock whose record has gone, and reports whether it did. Without an entry it does not.
func (k queues) freedFair(name string) bool {
	left := k.turns[name] - 1
	delete(k.turns, name)
	switch {
	case k.first(name).session == nil:
		return false
	case left > 0 && k.keep(name):
		k.turns[name] = left
		return true
	}
	k.turns[name] = -min(len(k.lines[name]), longestTurn)
	return k.serve(name)
}

// ended serves a lock whose record's time is over. Fair waiters that it was kept for had their turn.
func (k queues) ended(r *record) {
	if r.reserved != fairWaiters {
		k.freed(r.name)
		return
	}
	delete(k.turns, r.name)
	k.serve(r.name)
}
