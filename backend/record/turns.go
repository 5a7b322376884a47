package record

import (
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// A fair lock and the plain lock of the same name have a queue each, and the queues take turns. A turn has a tenure for
// each client in the queue, wire.TurnMost at most.

// clients returns the number of clients that have the first wire.TurnMost places.
func (l *Lock) clients() int {
	all := make(map[string]bool, wire.TurnMost)
	for _, p := range l.Places[:min(len(l.Places), wire.TurnMost)] {
		all[client(p.Owner)] = true
	}
	return len(all)
}

// keep keeps the free lock for the waiters for the fair lock, for [backend.Absence], if one of them can be reached: the
// first that can is told. It reports whether the lock is kept so.
func (l *Lock) keep(s *Step) bool {
	if !l.Free() || s.NoGrants {
		return false
	}
	for _, p := range l.Places {
		if s.tellFair(p.Owner) {
			l.KeptFair = s.Now + backend.Absence
			return true
		}
	}
	return false
}

// freed serves both queues of a lock that is free, but not by a release of the fair lock. It reports whether an entry
// was granted the lock, or told to ask after the time of the waiters for the fair lock. Without an entry nothing is
// kept for these: they are told of the release.
func (l *Lock) freed(s *Step) bool {
	turn := l.Turn + 1
	l.Turn = 0
	switch {
	case l.first(s) == nil:
	case turn < 0:
		l.Turn = turn
	case l.keep(s):
		l.Turn = l.clients()
		return l.tellFirst(s, backend.Absence)
	}
	return l.serve(s)
}

// freedFair serves both queues after a release of the fair lock, if there is an entry. It reports whether the lock is
// not free then.
func (l *Lock) freedFair(s *Step) bool {
	turn := l.Turn - 1
	l.Turn = 0
	switch {
	case l.first(s) == nil:
		return false
	case turn > 0 && l.keep(s):
		l.Turn = turn
		return true
	}
	l.Turn = -min(len(l.Queue), wire.TurnMost)
	return l.serve(s)
}
