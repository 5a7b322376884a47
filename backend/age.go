package backend

// AgeSession knows since when its store has kept all its data. It is a capability, see
// [LatchSession].
//
// The age of a store is the time since it was first asked for it after it had lost
// data, or may have: after it was emptied, started (though it read a file), or took over from
// another. It may be taken for younger than it is, and never for older. A store that was
// never asked is new: nobody can tell that from one that lost all.
//
// A store may keep its age for each AcquireRequest.AgeScope by itself; it is then new in a scope in which it was never asked.
//
// [Session.Acquire] of KindLock with AcquireRequest.Age is refused, with
// AcquireReply.Young, while the store is younger than that, whoever holds the lock.
// Remaining is then for how long it still is. An owner that holds the lock is granted
// again all the same.
type AgeSession interface {
	// KnowsAge tells whether AcquireRequest.Age is heeded; on some kinds of servers it cannot be.
	KnowsAge() bool
}
