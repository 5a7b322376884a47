package engine

// reason is why a lease ended without an Unlock, in one word: see mortise.Event.
type reason string

const (
	byOption      reason = "asked"      // WithLease or WithMaxHold
	byStore       reason = "unanswered" // no renewal was answered in time
	byPause       reason = "late"       // no renewal has failed: the process was paused
	byRemoval     reason = "removed"    // the record is gone, another owner's, or other data
	byForceUnlock reason = "unlocked"   // of this client
	byShutdown    reason = "closed"
)

// reasonOf returns the reason of a loss by what the store said, or another call.
func reasonOf(why string) reason {
	if why == forced {
		return byForceUnlock
	}
	return byRemoval
}
