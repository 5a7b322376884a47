package mortise

import (
	"math/rand/v2"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// A store that can ([backend.RelaySession]) tells one client of a release, the one that has waited
// longest, and not all. The one that comes after it asks if it stays silent for a while. Those behind
// ask later, one after the other about, should that one be dead too, until the next
// release is told: what they know of the holder's lease is of one who has gone.

const (
	// silence is how long a client that was told of a release has before the next one asks.
	silence = 250 * time.Millisecond
	// hintDelay is how long one who waits in turn lets a change of the record rest: a release is told,
	// too, to somebody; only what is not told, an expiry or a deletion, is worth asking.
	hintDelay = 100 * time.Millisecond
	// mostInARow bounds how often the lock is handed over within a client while others wait.
	mostInARow = 32
)

// Passed: a release was told to another client.
func (e *events) Passed(t backend.Topic, next backend.Turn) {
	c := (*Client)(e)
	c.barged(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[t]
	switch {
	case q == nil || q.first() == nil:
	case !q.inTurn:
		q.stir() // it asks for more than the lock, or has not been refused yet
	default:
		look := silence
		if !next.Second {
			look += silence + rand.N(time.Duration(next.Waiting+1)*silence)
		}
		q.look(c.now().mono + int64(look))
	}
}

// hintTurn has the head, which there is, ask a little later, since the record has changed.
func (c *Client) hintTurn(q *queue) {
	now := c.now().mono
	if at := max(now+int64(hintDelay), q.hinted+int64(hintsApart)); at < q.checkAt {
		q.hinted = at
		q.look(at)
	}
}

// look has the head ask at a time, though it may not be told.
func (q *queue) look(at int64) {
	if q.checkAt = at; at < q.sleeps {
		q.wake()
	}
}

// stepBack tells the store that nobody waits here any more, where somebody has. It is called with the mutex.
func (c *Client) stepBack(q *queue) {
	if !q.inTurn {
		return
	}
	q.inTurn = false
	if c.over {
		return
	}
	t := q.topic
	c.repeatLocked(t.Name, c.now().mono+int64(patience), func() bool { return c.relay.StepBack(c.base, t) == nil }, nil)
}

// waitsBehind notes that a request, which nobody waits for any more, has left a place in the store.
func (c *Client) waitsBehind(t backend.Topic) {
	c.mu.Lock()
	q := c.queueOf(t)
	c.expect(q)
	q.inTurn = true
	c.tidy(q)
	c.mu.Unlock()
}
