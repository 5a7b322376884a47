package memory

import (
	"slices"

	"github.com/mortise-go/mortise/backend"
)

// longestTurn is the largest number of tenures in a turn. A fair lock and the plain lock of the same name share one
// record, and have a queue each; the queues take turns. A turn has a tenure for each client in the queue.
const longestTurn = 8

// clients returns the number of clients that have the first longestTurn places in a fair lock's queue.
func clients(line []place) int {
	all := make(map[string]bool, longestTurn)
	for _, p := range line[:min(len(line), longestTurn)] {
		all[clientOf(p.owner)] = true
	}
	return len(all)
}

// fairWaiters stands in record.reserved for all waiters for the fair lock. It has no session.
var fairWaiters = entry{number: 1}

// keep reserves a free lock for the waiters for the fair lock, for [backend.Absence], if one of them can be reached:
// the first that can is told. It reports whether the lock is reserved so.
func (k queues) keep(name string) bool {
	s := k.store
	told := func(p place) bool { return s.watchers.first(name, p.owner) }
	if s.records[name] != nil || s.down != nil || !slices.ContainsFunc(s.places[name], told) {
		return false
	}
	s.put(&record{name: name, reserved: fairWaiters}, backend.Absence)
	return true
}

// freed serves both queues of a lock whose record has gone, but not by a release of the fair lock. It reports whether
// an entry was told to ask: at once, or after the time of the waiters for the fair lock. Without an entry, waiters for
// the fair lock are told of the release, and nothing is reserved for them.
func (k queues) freed(name string) bool {
	left := k.turns[name] + 1
	delete(k.turns, name)
	switch {
	case k.first(name).session == nil:
	case left < 0:
		k.turns[name] = left
	case k.keep(name):
		k.turns[name] = clients(k.store.places[name])
		return k.tellFirst(name, backend.Absence)
	}
	return k.serve(name)
}

// freedFair serves both queues of a lock after a release of the fair lock, if the plain lock's queue has an entry. It
// reports whether the lock is reserved then.
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

// ended serves the queues of a lock whose record r has expired. If r was reserved for the waiters for the fair lock,
// none of them came in time: their turn is over.
func (k queues) ended(r *record) {
	if r.reserved != fairWaiters {
		k.freed(r.name)
		return
	}
	delete(k.turns, r.name)
	k.serve(r.name)
}
