package redisproto

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// A release grants the lock to the owner in the first entry of its queue, and tells the owner's session: the message is
// the grant. It has the server's time of the grant. When the lease began by this process's clocks follows from a
// *pair*: when a request for the entry was sent, and the server's time in the reply to the same request. See
// docs/decisions/0123-a-release-grants-what-the-model-shows.md.

// grantsBySwitch reports whether sessions ask for grants. MORTISE_GRANTS=0 has them wait for reservations, as those of
// the version before.
func grantsBySwitch() bool { return os.Getenv("MORTISE_GRANTS") != "0" }

// pair is the time at which a request was sent, and the server's time when it was carried out: zero if that is unknown.
type pair struct {
	sent   time.Time
	server time.Duration // since the epoch of the server's clock
	// The last request was to put this owner, with this number of the engine's, into the queue.
	owner string
	entry uint64
}

const (
	// pairKept is how long a pair is used. The clocks of client and server drift apart, and the server may be another.
	pairKept = 99 * time.Second
	// pairSlack is how much later than by this process's clock a grant may have been made. What is more is another
	// clock: of another server, or set forward.
	pairSlack = 20 * time.Millisecond
)

// pairs are the last pairs of a session, by the topics that it waits for.
type pairs struct {
	mu  sync.Mutex
	all map[backend.Topic]pair
}

// asks notes a request that is to put an owner into the queue of a topic. Messages about the entry may come before the
// reply.
func (p *pairs) asks(t backend.Topic, owner string, entry uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = make(map[backend.Topic]pair)
	}
	x := p.all[t]
	x.owner, x.entry = owner, entry
	p.all[t] = x
}

// note notes the times of a request for a topic for which asks was called.
func (p *pairs) note(t backend.Topic, sent time.Time, server time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, is := p.all[t]; is && x.sent.Before(sent) {
		x.sent, x.server = sent, server
		p.all[t] = x
	}
}

// of returns the pair of a topic; the zero pair if there is none.
func (p *pairs) of(t backend.Topic) pair {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[t]
}

// doubt drops the times of a topic, and of its requests before now: another server may answer from now on.
func (p *pairs) doubt(t backend.Topic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x, is := p.all[t]; is {
		x.sent, x.server = time.Now(), 0
		p.all[t] = x
	}
}

// forget drops the pair of a topic for which nothing waits.
func (p *pairs) forget(t backend.Topic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, t)
}

// grant is what a message about a grant says.
type grant struct {
	at    time.Duration // the server's time
	token int64
	lease time.Duration
}

// grantIn decodes "time:token:lease:entry".
func grantIn(text string) (g grant, entry string, is bool) {
	parts := strings.SplitN(text, ":", 4)
	if len(parts) < 4 {
		return g, "", false
	}
	var n [3]int64
	for i := range n {
		x, err := strconv.ParseUint(parts[i], 10, 63)
		if err != nil {
			return g, "", false
		}
		n[i] = int64(x)
	}
	g = grant{micros(n[0]), n[1], millis(min(n[2], wire.FirstLease.Milliseconds()))}
	return g, parts[3], true
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// granted passes a grant on.
func (s queue) granted(h backend.QueueHandler, t backend.Topic, owner string, g grant) {
	s.seen.Freed(t.Name) // the record is another than the one that the held cache has
	now := time.Now()
	from := s.pairs.of(t).since(g.at, now)
	if !s.counts() { // a message by PUBLISH in a cluster may be of another server than the pair, with another clock
		from = longOver(now)
	}
	h.Granted(t, backend.Grant{Owner: owner, Token: g.token, From: from, Lease: g.lease})
}

// longOver is when a grant is said to have been made whose time is not known: its lease is over, so the engine asks,
// and the owner is granted the whole lease.
func longOver(now time.Time) time.Time { return now.Add(-time.Hour) }

// since returns the time at which the server's clock was at, or longOver if the pair does not tell it.
func (p pair) since(at time.Duration, now time.Time) time.Time {
	passed, waited := at-p.server, max(now.Sub(p.sent), now.Round(0).Sub(p.sent.Round(0)))
	if p.server == 0 || passed < 0 || waited > pairKept || passed > now.Sub(p.sent)+pairSlack {
		return longOver(now)
	}
	from := p.sent.Add(passed - passed/drift)
	if from.After(now) {
		return now
	}
	return from
}

// drift is by what part of a time two clocks may differ in it: as for a lease's margin.
const drift = 100
