// Package quorum has locks that are held in more than half of several independent stores, by the Redlock algorithm:
// they survive the loss of a minority of the stores, including its data.
//
//	locks, err := quorum.New(a, b, c) // clients of three Redis servers without replication
//	lease, err := locks.Lock(ctx, "orders:42")
package quorum

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bridge"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/quorum"
)

// The way to the engine of a client.
var (
	engineOf  = bridge.Engine.(func(*mortise.Client) *engine.Engine)
	with      = bridge.Request.(func(engine.Request, []mortise.Option) (engine.Request, error))
	leaseOf   = bridge.Lease.(func(*lease.Handle) *mortise.Lease)
	configure = bridge.Configure.(func(func(*engine.Config) error) mortise.ClientOption)
)

// New returns a [mortise.Locker] whose locks are held in more than half of several independent stores, by
// the Redlock algorithm. The number of stores is odd, three or more; a lock survives the failure of a
// minority. All stores are asked at the same time and for a short time only, a grant counts from
// before the request and less a margin for the clocks' drift, and grants of a minority are released
// at once. Redisson: RedLock.
//
// The lock in each store, a part of the lease, is renewed by the watchdog of the store's client. A
// store that came back empty, or was unavailable, is locked again while the lease lives, within a
// third of the watchdog timeout. The lease ends when fewer than a majority of its parts live.
//
// A store that has lost its data, or may have, has no vote for as long as the longest lease. Otherwise
// two owners could hold a lock: A holds it in the stores 1, 2 and 3; store 3 comes back empty; B gets
// it in the stores 3, 4 and 5. On Redis a key records since when, and in which run, the server has its
// data, so restarts, failovers to a replica and FLUSHALL are noticed; see [WithRejoinDelay]. A new
// server looks like an emptied server: the very first Lock on new stores waits for a watchdog timeout,
// and TryLock returns [mortise.ErrUnavailable] until then, as does Lock with a shorter [mortise.WithWait]. Stores that
// are clusters do not have this rule, nor do Redisson's clients: there, keep a server that lost its
// data down for as long. A single record that vanishes, by DEL or eviction, is noticed by its holder
// only. The stores may be of several kinds. A store other than Redis that may come back without what
// it has confirmed must stay down for as long, too.
//
// The clients should have the same watchdog timeout, and connect to stores that share nothing. If
// their prefixes ([mortise.WithPrefix]) differ, New returns [mortise.ErrInvalid]; the defaults of a call are
// those of the first client. Options and errors are those of [mortise.Locker]; [mortise.ErrUnavailable], after a few
// seconds at most, if too few stores answered, with the number of each failed store. [mortise.WithLease] may
// not be longer than WithRejoinDelay. The locks are reentrant, and have no fencing tokens.
//
// Calls that wait do so in the queue of the first store that refuses, and take turns. A call of Lock that gets a
// majority while a store before them refuses gives it back once, and asks again after some 10 ms: the owner there has
// the turn, or is a dead one.
//
// Cost: one command to each store for Lock and for Unlock. A waiter asks all stores again when its turn comes, and
// about every second.
func New(clients ...*mortise.Client) (mortise.Locker, error) {
	refuse := func(format string, args ...any) (mortise.Locker, error) {
		return nil, fail.New("quorum", "", fail.Invalidf(format, args...))
	}
	if len(clients) < 3 || len(clients)%2 == 0 {
		return refuse("quorum.New over %d clients; an odd number from three up survives failures", len(clients))
	}
	nodes := make([]quorum.Node, len(clients))
	engines := make([]*engine.Engine, len(clients))
	for i, c := range clients {
		if c == nil {
			return refuse("client %d is nil", i)
		}
		e := engineOf(c)
		if err := e.Usable(); err != nil {
			return nil, fail.New("quorum", "", fmt.Errorf("client %d: %w", i, err))
		}
		if slices.Contains(clients[:i], c) {
			return refuse("client %d is listed twice; each client has one vote", i)
		}
		nodes[i], engines[i] = e, e
		if e.Config.Prefix != engines[0].Config.Prefix {
			return refuse("client %d has another prefix than client 0; give all the same WithPrefix", i)
		}
		if out := e.RejoinDelay(); out > 0 && out < e.Watchdog() {
			return refuse("client %d: WithRejoinDelay(%v) is shorter than its watchdog timeout, %v; a store must have no "+
				"vote for the longest lease", i, out, e.Watchdog())
		}
	}
	s := &stores{quorum: quorum.New(nodes, slices.ContainsFunc(engines, engine.NotesSites)), first: engines[0]}
	if d := s.first.Config.Defaults; d != nil {
		s.defaults = engine.Request{Wait: d.Wait, Wish: d.Wish, Lease: d.Lease, MaxHold: d.MaxHold}
	}
	return s, nil
}

// stores is the Locker of New. The first client has the prefix.
type stores struct {
	quorum   *quorum.Quorum
	first    *engine.Engine
	defaults engine.Request // those of the first client that apply
}

func (s *stores) Lock(ctx context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	return s.acquire(ctx, engine.Request{Name: name}, opts)
}

func (s *stores) TryLock(ctx context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	return s.acquire(ctx, engine.Request{Name: name, Try: true}, opts)
}

func (s *stores) acquire(ctx context.Context, q engine.Request, opts []mortise.Option) (*mortise.Lease, error) {
	q, err := s.Request(q, opts)
	if err != nil {
		return nil, err
	}
	h, err := s.quorum.Acquire(ctx, q)
	return leaseOf(h), err
}

// Request applies the options: LockAll makes its requests by it.
func (s *stores) Request(q engine.Request, opts []mortise.Option) (engine.Request, error) {
	q.Name = engine.FullName(s.first, q.Name)
	q, err := with(q, opts)
	switch {
	case err != nil:
		return q, err
	case q.Replicas.N > 0:
		return q, q.Fail(fail.Invalidf("WithReplicas does not apply to a quorum, whose majority of stores does without"))
	case q.Family != backend.KindLock || q.Fenced || q.NonReentrant || q.Polling > 0:
		return q, q.Fail(fail.Invalidf("Fair, Fenced, NonReentrant and Polling do not apply to a quorum, " +
			"whose locks are reentrant, and have no tokens"))
	}
	return q.Over(&s.defaults), nil
}

// WithRejoinDelay sets how long a store that has lost its data, or may have, has no vote in a quorum:
// after it was emptied or restarted, or when it is new. d must be no shorter than the longest lease
// of any client on the store, Redisson's RedLock included; all clients of a store should use the same
// d. The default is the watchdog timeout, which is long enough if no [mortise.WithLease] is longer.
//
// With zero the store has its vote at once. Use zero only for stores that stay down for the longest
// lease after a restart, and are never emptied.
func WithRejoinDelay(d time.Duration) mortise.ClientOption {
	return configure(func(c *engine.Config) error {
		if d < 0 || d > mortise.MaxLease {
			return fail.Invalidf("WithRejoinDelay(%v): between 0 and %v", d, mortise.MaxLease)
		}
		c.RejoinDelay = clock.CeilMilli(d)
		return nil
	})
}

// WithRejoinScope names the record of the age of the store's data that [WithRejoinDelay] uses. All
// clients of a store that lock the same names by [New] should use the same scope.
//
// On Redis the record is a key, "mortise:1:since" for clients without the option, and
// "mortise:1:since:" and the scope with it. A Redis user with write access to the key can keep the
// store out of every quorum of the scope, or make an emptied store look old. So if services with
// different users share a server, give each service a scope of its own, for example its prefix,
// and let its user write only this key.
//
// In a new scope the store counts as new: the first Lock waits for as long as WithRejoinDelay says.
// The scope has 1 to 256 bytes of UTF-8 without control characters; otherwise mortise.New returns
// [mortise.ErrInvalid].
func WithRejoinScope(scope string) mortise.ClientOption {
	return configure(func(c *engine.Config) error {
		if err := engine.CheckID("WithRejoinScope", scope); err != nil {
			return err
		}
		c.RejoinScope = scope
		return nil
	})
}
