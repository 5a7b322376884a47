package mortise

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/quorum"
)

// Quorum returns a [Locker] that holds a lock while more than half of several independent stores
// grant it, by the Redlock algorithm. The stores are an odd number, three or more; the lock
// survives the failure of a minority. All stores are asked at the same time and for a short time
// only, a grant counts from before the request and less a margin for the clocks' drift, and a
// minority of grants is released at once. Redisson: RedLock.
//
// Each part is renewed by its own client's watchdog. A store that came back empty, or was
// unavailable, is locked again while the lease lives, within a third of the watchdog timeout. The
// lease ends when fewer than a majority of its parts live.
//
// A store that lost its data, or may have, has no vote for the longest lease: A holds 1, 2, 3; 3
// comes back empty; B could get 3, 4, 5. On Redis a key holds the age of the server's data and the
// run of the server, so restarts, failovers to a replica and FLUSHALL are noticed; see
// [WithRejoinDelay]. A new server looks like an emptied server: the very first Lock on new stores
// waits for a watchdog timeout, and TryLock returns [ErrUnavailable] until then, as does Lock with
// a shorter [WithWait]. The rule is not kept for stores that are clusters, nor by Redisson's
// clients: there, keep a server that lost its data down for as long. Single records that vanish, by
// DEL or eviction, are noticed by their holder only.
//
// The clients should have the same watchdog timeout, and connect to stores that share nothing. They
// have the same prefix ([WithPrefix]), else Quorum returns [ErrInvalid]; defaults of a call are
// those of the first client. Options and errors are those of [Locker]; [ErrUnavailable], after a
// few seconds at most, if too few stores answered, with the name of each failed store. [WithLease]
// may not be longer than WithRejoinDelay. The kind is the reentrant lock, without fencing tokens.
//
// Cost: one command to each store for Lock and for Unlock. A waiter asks all stores again at each
// release, and about every second.
func Quorum(clients ...*Client) (Locker, error) {
	refuse := func(format string, args ...any) (Locker, error) {
		return nil, fail.New("quorum", "", fail.Invalidf(format, args...))
	}
	if len(clients) < 3 || len(clients)%2 == 0 {
		return refuse("Quorum over %d clients; an odd number from three up survives failures", len(clients))
	}
	seen := make(map[*Client]bool)
	nodes := make([]quorum.Node, len(clients))
	for i, c := range clients {
		if c == nil {
			return refuse("client %d is nil", i)
		}
		if err := c.usable(); err != nil {
			return nil, fail.New("quorum", "", fmt.Errorf("client %d: %w", i, err))
		}
		if seen[c] {
			return refuse("client %d is listed twice; each client has one vote", i)
		}
		seen[c] = true
		if c.engine.Config.Prefix != clients[0].engine.Config.Prefix {
			return refuse("client %d has another prefix than client 0; give all the same WithPrefix", i)
		}
		if out := c.engine.RejoinDelay(); out > 0 && out < c.engine.Watchdog() {
			return refuse("client %d: WithRejoinDelay(%v) is shorter than its watchdog timeout, %v; a store must have no "+
				"vote for the longest lease", i, out, c.engine.Watchdog())
		}
		nodes[i] = c.engine
	}
	sites := slices.ContainsFunc(clients, func(c *Client) bool { return engine.WarnsOfHolds(c.engine) })
	return &stores{quorum.New(nodes, sites), clients[0]}, nil
}

// stores are those of several clients, of which the first has the prefix and the defaults of all.
type stores struct {
	quorum *quorum.Quorum
	first  *Client
}

func (s *stores) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, engine.Request{Name: name}, opts)
}

func (s *stores) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, engine.Request{Name: name, Try: true}, opts)
}

func (s *stores) acquire(ctx context.Context, q engine.Request, opts []Option) (*Lease, error) {
	q, err := s.first.with(q, opts)
	if err != nil {
		return nil, err
	}
	if q.Replicas.N > 0 {
		return nil, q.Fail(fail.Invalidf("WithReplicas does not apply to Quorum, whose majority of stores does without"))
	}
	return public(s.quorum.Acquire(ctx, q))
}

// WithRejoinDelay sets how long a store that lost its data, or may have, has no vote in [Quorum]:
// after it was emptied or restarted, or when it is new. d must be no shorter than the longest lease
// of any client on the store, Redisson's RedLock included; all clients of a store should agree. The
// default is the watchdog timeout, enough as long as [WithLease] is not longer.
//
// With zero the store votes at once: only for stores that stay down for the longest lease after a
// restart, and are never emptied.
func WithRejoinDelay(d time.Duration) ClientOption {
	return func(c *engine.Config) error {
		if d < 0 || d > MaxLease {
			return fail.Invalidf("WithRejoinDelay(%v): between 0 and %v", d, MaxLease)
		}
		c.RejoinDelay = clock.CeilMilli(d)
		return nil
	}
}

// WithRejoinScope gives this client its own record of the age of its store's data, the record for
// the rule of [WithRejoinDelay]. All clients of a store that lock the same names with [Quorum]
// should name the same scope.
//
// On Redis the record is a key, "mortise:1:since" for clients without the option, and
// "mortise:1:since:" and the scope with it. A Redis user with write access to the key can keep the
// store out of every Quorum of the scope, or make an emptied store look old. So if services with
// different users share a server, each service names a scope of its own, for example its prefix,
// and its user may write only this key.
//
// A store is new in a scope without an earlier request: the first Lock there waits for as long as
// WithRejoinDelay says. The scope has 1 to 256 bytes of UTF-8 without control characters; otherwise
// New returns [ErrInvalid].
func WithRejoinScope(scope string) ClientOption {
	return func(c *engine.Config) error {
		if err := engine.CheckID("WithRejoinScope", scope); err != nil {
			return err
		}
		c.RejoinScope = scope
		return nil
	}
}
