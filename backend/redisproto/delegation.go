package redisproto

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// nestKey is the hash with the owners of a delegated lock: their order, and the end of each lease. See
// scripts/delegate_enter.lua. The names n and {n} share the key. That is safe, because owner ids are unique and a
// script heeds only the owners of its own lock. The key must not change between versions of mortise: all processes must
// find an owner's lease at the same place (decision 51).
func nestKey(name string) string { return tagged("mortise:1:nest:", name) }

// underChannel is the channel for waiters that want to enter under an owner: a message says that they may try again, or
// that the owner is gone.
func underChannel(name, owner string) string { return channelOf(name) + ":under:" + owner }

// Enter implements [backend.DelegationStore].
func (s delegated) Enter(ctx context.Context, r backend.EnterRequest) (backend.EnterReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.EnterReply{}, err
	}
	c, w := s.by(r.Replication)
	reply, err := s.enterUnder(ctx, c, r)
	return reply, s.replicated(r.Name, w, &reply.AcquireReply, err)
}

// enterUnder sends the script by c. It does not use the held cache: the cache knows that a lock is held, but not by
// which owners.
func (s delegated) enterUnder(ctx context.Context, c Commands, r backend.EnterRequest) (backend.EnterReply, error) {
	reply, err := c.DelegateEnter(ctx,
		DelegateEnterKeys{Lock: r.Name, Nest: nestKey(r.Name), Token: tokenKey(r.Name)},
		DelegateEnterArgs{Owner: r.Owner, Under: r.Under, Holds: int64(r.Holds), Drawn: r.Drawn, Lease: r.Lease,
			Fenced: r.Fenced, Track: s.adapter.Features().Tracking})
	name := r.Name
	if left := leftIn[[]int64](err); left != nil {
		return backend.EnterReply{}, behind(left, func(reply []int64, err error) (backend.EnterReply, error) {
			return s.entered(name, reply, err)
		})
	}
	return s.entered(name, reply, err)
}

func (s delegated) entered(name string, reply []int64, err error) (backend.EnterReply, error) {
	s.seen.Forget(name)
	switch {
	case err != nil:
		return backend.EnterReply{}, s.faultOf(err, true)
	case len(reply) != 2 || reply[0] < 0 || reply[0] > wire.DelegateNotHeld || reply[1] < -1:
		return backend.EnterReply{}, strange("delegate_enter", reply)
	case reply[0] == 1:
		return backend.EnterReply{AcquireReply: backend.AcquireReply{Granted: true, Token: reply[1]}}, nil
	case reply[0] == wire.DelegateNotHeld:
		return backend.EnterReply{Absent: true}, nil
	}
	out := backend.EnterReply{AcquireReply: backend.AcquireReply{Remaining: remaining(reply[1])}}
	if reply[0] == 2 {
		out.AskAfter = backend.HoldsLook
		if out.Remaining > 0 {
			out.AskAfter = min(out.AskAfter, out.Remaining)
		}
	}
	return out, nil
}

// Release implements [backend.DelegationStore].
func (s delegated) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.ReleaseReply{}, err
	}
	reply, err := s.adapter.DelegateRelease(ctx,
		DelegateReleaseKeys{Lock: r.Name, Nest: nestKey(r.Name), Channel: channelOf(r.Name),
			Fair: queueKey(r.Name)},
		DelegateReleaseArgs{Owner: r.Owner, Keep: int64(r.Keep), Publish: s.publish()})
	return s.releaseReply(r.Name, "delegate_release", reply, err)
}

// Renew implements [backend.DelegationStore].
func (s delegated) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	item := func(r backend.RenewRequest) (DelegateRenewItem, error) {
		return DelegateRenewItem{Lock: r.Name, Nest: nestKey(r.Name), Owner: r.Owner, Lease: r.Lease, Exact: r.Exact}, nil
	}
	x := renewal[DelegateRenewItem, DelegateRenewArgs]{"delegate_renew", s.adapter.DelegateRenew, item, nil}
	x.of(ctx, s.core, in, out)
}
