package mortise

import (
	"time"

	"github.com/mortise-go/mortise/backend"
)

// A store that can ([backend.RelaySession]) tells one client of a release, the one that has waited
// longest, and not all. The client that comes after it asks if it stays silent, and all
// others when the lease is over that they know of.

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
func (e *events) Passed(t backend.Topic, second bool) {
	c := (*Client)(e)
	c.barged(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[t]
	switch {
	case q == nil || q.head == nil:
	case !q.inTurn:
		q.stir() // it asks for more than the lock, or has not been refused yet
	default:
		now := c.now().mono
		q.checkAt, q.second = never, second
		if second {
			q.checkAt = now + int64(silence)
		}
		// What is known of the holder's lease is of one who has gone.
		sooner := min(q.retryAt, now+int64(c.watchdog))
		if second || sooner != q.retryAt {
			q.retryAt = sooner
			q.wake()
		}
	}
}

// hintTurn has the head ask a little later, since the record has changed.
func (c *Client) hintTurn(q *queue) {
	if q.head == nil {
		return
	}
	now := c.now().mono
	if at := max(now+int64(hintDelay), q.hinted+int64(hintsApart)); at < q.checkAt {
		q.checkAt, q.hinted = at, at
		q.wake()
	}
}

// stepBack tells the store that nobody waits here any more. It is called with the mutex.
func (c *Client) stepBack(q *queue) {
	if !q.inTurn {
		return
	}
	q.inTurn = false
	if c.over {
		return
	}
	t := q.topic
	c.repeatLocked(c.now().mono+int64(patience), func() bool { return c.relay.StepBack(c.base, t) == nil }, nil)
}

// waitsBehind notes that a request, which nobody waits for any more, has left a place in the store.
func (c *Client) waitsBehind(t backend.Topic) {
	c.mu.Lock()
	q := c.queueOf(t)
	q.inTurn = true
	c.tidy(q)
	c.mu.Unlock()
}
