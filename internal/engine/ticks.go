package engine

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
)

// TellClaim tells the observer of a claim that was granted a tick, and the observer and the log of a claim that failed,
// or found the last started tick ahead of the store's clock. Other claims are refused as a matter of course, and not
// told.
func (k Counting) TellClaim(ctx context.Context, since clock.Instant, r backend.TickRequest, reply backend.TickReply,
	err error) {
	if k.Usable() != nil {
		return
	}
	v := Event{
		Client: k.Config.Name, Name: r.Name, Kind: "tick", Context: ctx, Way: Way{Waited: k.Since(since)}, Err: err,
	}
	told, ahead := k.Config.Observer.NotAcquired, reply.Next-r.Interval
	if err == nil { // what was to be logged is over
		k.announce.Drop(announce.TickFailed, r.Name)
		if reply.Granted || ahead <= 0 {
			k.announce.Drop(announce.TickAhead, r.Name)
		}
	}
	switch {
	case err == nil && reply.Granted:
		told = k.Config.Observer.Acquired
	case err == nil && ahead > 0:
		v.Err = fail.New("claimtick", r.Name, fail.TickAhead(ahead))
		k.logAhead(r.Name, ahead)
	case err == nil || errors.Is(err, fail.Invalid) || errors.Is(err, fail.InvalidName):
		return
	case !fail.IsGone(err) && !errors.Is(err, fail.Closed):
		k.announce.Sum(announce.TickFailed, r.Name, "name", fail.Shorten(r.Name), "err", err)
	}
	if told != nil {
		told(v)
	}
}

func (k Counting) logAhead(name string, ahead time.Duration) {
	k.announce.Sum(announce.TickAhead, name, "name", fail.Shorten(name), "ahead", ahead.Round(time.Millisecond))
}
