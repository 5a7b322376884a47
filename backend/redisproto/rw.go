package redisproto

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/mortise-go/mortise/backend"
)

// A read-write lock is Redisson's: a hash with the field mode, "read" or "write", a
// field for each reader, and one for the writer that ends in ":write". Each hold of a
// reader has a key that lives as long as its lease; those of a field are numbered from 1. A
// reader of ours has one hold, so it is always the first.

// rwChannel is where releases of both sides are announced.
func rwChannel(name string) string { return tagged("redisson_rwlock:", name) }

// claimKey names the waiting writer that keeps fresh readers out. Redisson does not know
// it, and it always expires.
func claimKey(name string) string { return companion("writer", name) }

func writerField(owner string) string { return owner + ":write" }

func timeoutKey(name, reader string) string {
	return tagged("", name) + ":" + reader + ":rwlock_timeout:1"
}

func (s readWrite) acquireSide(ctx context.Context, c Commands, r backend.AcquireRequest) (backend.AcquireReply,
	error) {
	s.sides.Store(true)
	if r.Kind == backend.KindRead {
		return s.acquireRead(ctx, c, r)
	}
	return s.acquireWrite(ctx, c, r)
}

func (s readWrite) acquireRead(ctx context.Context, c Commands, r backend.AcquireRequest) (backend.AcquireReply,
	error) {
	track := s.adapter.Features().Tracking
	timeout := timeoutKey(r.Name, r.Owner)
	if r.Under == "" {
		left, err := c.ReadAcquire(ctx, ReadAcquireKeys{Lock: r.Name, Timeout: timeout, Writer: claimKey(r.Name)},
			ReadAcquireArgs{Owner: r.Owner, Lease: r.Lease, Track: track})
		return s.answer("read_acquire", left, err)
	}
	under, proof := r.Under, timeoutKey(r.Name, r.Under)
	if r.UnderKind == backend.KindWrite {
		under, proof = writerField(r.Under), r.Name
	}
	reply, err := c.ReadEnter(ctx, ReadEnterKeys{Lock: r.Name, Timeout: timeout, Proof: proof},
		ReadEnterArgs{Owner: r.Owner, Under: under, Lease: r.Lease, Track: track})
	granted, err := s.yes("read_enter", reply, err)
	return backend.AcquireReply{Granted: granted, Absent: err == nil && !granted}, err
}

func (s readWrite) acquireWrite(ctx context.Context, c Commands, r backend.AcquireRequest) (backend.AcquireReply,
	error) {
	reply, err := c.WriteAcquire(ctx, WriteAcquireKeys{Lock: r.Name, Writer: claimKey(r.Name)}, WriteAcquireArgs{
		Owner:    writerField(r.Owner),
		Lease:    r.Lease,
		Claimant: r.Claimant,
		Claim:    r.Claim,
		Track:    s.adapter.Features().Tracking,
	})
	if err != nil {
		return backend.AcquireReply{}, s.fault(err)
	}
	if len(reply) != 2 {
		return backend.AcquireReply{}, strange("write_acquire", reply)
	}
	out, err := s.answer("write_acquire", reply[0], nil)
	out.Claimed = err == nil && reply[1] == 1
	return out, err
}

// answer decodes what an acquire script says: 0 granted, else for how long not.
func (s *core) answer(script string, left int64, err error) (backend.AcquireReply, error) {
	switch {
	case err != nil:
		return backend.AcquireReply{}, s.fault(err)
	case left == 0:
		return backend.AcquireReply{Granted: true}, nil
	case left >= -1:
		return backend.AcquireReply{Remaining: remaining(left)}, nil
	}
	return backend.AcquireReply{}, strange(script, left)
}

func (s readWrite) releaseRead(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	reply, err := s.adapter.ReadRelease(ctx,
		ReadReleaseKeys{Lock: r.Name, Timeout: timeoutKey(r.Name, r.Owner), Prefix: tagged("", r.Name),
			Channel: rwChannel(r.Name)},
		ReadReleaseArgs{Owner: r.Owner, Publish: s.publish()})
	held, err := s.yes("read_release", reply, err)
	return backend.ReleaseReply{Held: held}, err
}

func (s readWrite) releaseWrite(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	reply, err := s.adapter.WriteRelease(ctx, rwReleaseKeys(r.Name), WriteReleaseArgs{
		Owner:   writerField(r.Owner),
		Keep:    int64(r.Keep),
		Publish: s.publish(),
	})
	held, err := s.yes("write_release", reply, err)
	return backend.ReleaseReply{Held: held}, err
}

func (s readWrite) renewReads(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	items, replies := make([]ReadRenewItem, len(in)), make([]BatchReply, len(in))
	for i, r := range in {
		items[i] = ReadRenewItem{Lock: r.Name, Timeout: timeoutKey(r.Name, r.Owner), Owner: r.Owner, Lease: r.Lease}
	}
	s.adapter.ReadRenew(ctx, RenewArgs{Track: s.adapter.Features().Tracking}, items, replies)
	for i, r := range replies {
		held, err := s.yes("read_renew", r.Value, r.Err)
		out[i] = backend.RenewResult{Held: held, Err: err}
	}
}

func (s readWrite) inspectRW(ctx context.Context, name string) (backend.Record, error) {
	reply, err := s.adapter.RWInspect(ctx, RWInspectKeys{Lock: name, Prefix: tagged("", name)})
	if err != nil {
		return backend.Record{}, s.fault(err)
	}
	if len(reply) == 0 {
		return backend.Record{}, nil
	}
	left, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil || left < -2 || len(reply)%2 != 0 {
		return backend.Record{}, strange("rw_inspect", reply)
	}
	rec := backend.Record{Held: true, Remaining: remaining(left), Kind: backend.KindRead}
	if reply[1] == "write" {
		rec.Kind = backend.KindWrite
	}
	for i := 2; i < len(reply); i += 2 {
		holds, err := strconv.Atoi(reply[i+1])
		owner, writer := strings.CutSuffix(reply[i], ":write")
		switch {
		case err != nil || holds <= 0:
		case writer:
			rec.Owner, rec.Holds = owner, holds
		default:
			rec.Readers++
			if rec.Kind == backend.KindRead && (rec.Owner == "" || owner < rec.Owner) {
				rec.Owner, rec.Holds = owner, holds
			}
		}
	}
	return rec, nil
}

func (s readWrite) forceRelease(ctx context.Context, name string) (bool, error) {
	reply, err := s.adapter.RWForceRelease(ctx, rwReleaseKeys(name), ForceReleaseArgs{Publish: s.publish()})
	return s.yes("rw_force_release", reply, err)
}

// Withdraw implements [backend.ReadWriteStore].
func (s readWrite) Withdraw(ctx context.Context, t backend.Topic, claimant string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	reply, err := s.adapter.RWWithdraw(ctx, RWWithdrawKeys{Writer: claimKey(t.Name), Channel: rwChannel(t.Name)},
		RWWithdrawArgs{Claimant: claimant, Publish: s.publish()})
	_, err = s.yes("rw_withdraw", reply, err)
	return err
}

func rwReleaseKeys(name string) RWReleaseKeys {
	return RWReleaseKeys{Lock: name, Prefix: tagged("", name), Channel: rwChannel(name)}
}

// sided tells whether a kind is a side of a read-write lock.
func sided(k backend.Kind) bool { return k == backend.KindRead || k == backend.KindWrite }

var errNoReentry = &backend.Fault{Err: errors.New("a reader enters again as another owner, with Acquire under it")}
