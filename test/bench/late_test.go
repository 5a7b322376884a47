//go:build linux

package bench

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	ours "github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// refusalBound is when refusals without a command are over: so long after the invalidation has had time to arrive.
// Delays of the machine are added twice, as in [redistest.Machine.Within].
const refusalBound = 10 * time.Millisecond

// lateness is how long TryLock refuses, without a command, a lock that another process has released.
type lateness struct {
	trip     time.Duration // of an invalidation
	releases int
	after    int           // releases after whose reply a TryLock began that was refused
	longest  time.Duration // from a release's reply to the begin of the last TryLock that was refused, less the trip
	late     int           // releases after which that was more than the bound
	delayed  time.Duration // the machine's longest delay meanwhile
}

// refusals has one goroutine call TryLock of a lock without a pause, on rueidis with its cache, while another process
// releases it.
func refusals(t testing.TB, srv *redistest.Server, trip time.Duration, releases int) lateness {
	t.Helper()
	addr := srv.Addr()
	if trip > 0 {
		addr = slowLink(t, addr, trip)
	}
	client := harness.Must(mortise.New(ours.New(rueidis.ClientOption{InitAddress: []string{addr}})))(t)
	defer client.Close()
	machine := redistest.Timed(t)
	l := lateness{trip: trip, releases: releases}
	for range releases {
		srv.Must("HSET", "n", "another:1", "1")
		released := make(chan time.Time, 1)
		time.AfterFunc(4*trip+time.Duration(50+rand.IntN(20))*time.Millisecond, func() { // it is in the cache by then
			srv.Must("DEL", "n")
			released <- time.Now()
		})
		var refused time.Time // when the last one that was refused began
		for {
			began := time.Now()
			lease, err := client.TryLock(t.Context(), "n")
			if err == nil {
				harness.OK(t, lease.Unlock(t.Context()))
				break
			}
			harness.FatalIf(t, !errors.Is(err, mortise.ErrNotAcquired), "%v", err)
			refused = began
		}
		if at := <-released; !refused.IsZero() {
			l.add(refused.Sub(at), machine.Late(at))
		}
	}
	return l
}

// add notes a release: from its reply to the last TryLock that was refused took so long.
func (l *lateness) add(took, delayed time.Duration) {
	if took > 0 {
		l.after++
	}
	l.longest = max(l.longest, took-l.trip)
	l.delayed = max(l.delayed, delayed)
	if took > l.trip+refusalBound+2*delayed {
		l.late++
	}
}

func (l lateness) print(out io.Writer) {
	fmt.Fprintf(out, "%d releases by another process, an invalidation takes %v: after %d a TryLock was refused that "+
		"began after the reply, the last one %v after the trip; %d later than %v and twice the machine's delay, %v at most\n",
		l.releases, l.trip, l.after, max(0, l.longest).Round(time.Microsecond), l.late, refusalBound,
		l.delayed.Round(time.Microsecond))
}

// tripsOfInvalidations are of a server that is near, and of one that is far.
var tripsOfInvalidations = []time.Duration{0, 30 * time.Millisecond}

func TestNoRefusalComesLaterThanItsInvalidation(t *testing.T) {
	for _, trip := range tripsOfInvalidations {
		l := refusals(t, redistest.Start(t), trip, 10)
		l.print(t.Output())
		harness.ErrorIf(t, l.late > 0, "%d refusals were late", l.late)
	}
}
