package engine

import (
	"context"

	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/callsite"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// warnsOfHolds reports whether the engine logs holds that last long, with their call sites.
func warnsOfHolds(e *Engine) bool { return e.Config.HoldWarning > 0 && e.announce.Logs() }

// NotesSites reports whether somebody wants to know where calls come from: the log, or an Observer.
func NotesSites(e *Engine) bool { return warnsOfHolds(e) || e.Config.Observer.Acquired != nil }

// siteOf returns the site of the call into this module, for Acquire and AcquireAll; 0 if the engine does not log sites.
func siteOf(ctx context.Context, e *Engine) callsite.Site {
	if !warnsOfHolds(e) {
		return 0
	}
	return callsite.Of(ctx, 2)
}

// warnAt returns when to log that a hold lasts long; clock.Never if that is logged already, or not to be logged.
func warnAt(t *tenure, h *lease.Hold) int64 {
	if h.Marks.Long || h.Marks.Proclaims || !warnsOfHolds(t.engine) {
		return clock.Never
	}
	return h.Since.Mono + int64(t.engine.Config.HoldWarning)
}

// warn logs each hold of a tenure that lasts long, once.
func warn(t *tenure, now clock.Instant) {
	for h := range t.All {
		if warnAt(t, h) <= now.Mono {
			h.Marks.Long = true
			t.engine.announce.Sum(announce.HeldLong, "", "name", fail.Shorten(h.Name()), "owner", fail.Shorten(t.Owner),
				"held", now.Sub(h.Since), "at", h.Site)
		}
	}
}
