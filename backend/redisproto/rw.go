package redisproto

import (
	"context"
	"strconv"

	"github.com/mortise-go/mortise/backend"
)

// A read-write lock has Redisson's layout: a hash with the field mode ("read" or "write"), a field for each reader, and
// a field for the writer, which ends in ":write". Each hold of a reader has a timeout key, which expires with the lease
// of the hold; the timeout keys of a field are numbered from 1. A reader of mortise has one hold, so its timeout key is
// the one with number 1.

// rwChannel returns the channel on which releases of both sides are announced.
func rwChannel(name string) string { return tagged("redisson_rwlock:", name) }

// claimKey returns the key with the claim of a waiting writer, which keeps new readers out. Redisson does not know the
// key. The key always expires.
func claimKey(name string) string { return companion("writer", name) }

func writerField(owner string) string { return owner + ":write" }

func timeoutKey(name, reader string) string {
	return tagged("", name) + ":" + reader + ":rwlock_timeout:1"
}

// AcquireRead implements [backend.ReadWriteStore].
func (s readWrite) AcquireRead(ctx context.Context, r backend.ReadRequest) (reply backend.ReadReply, err error) {
	if err := s.ready(ctx); err != nil {
		return reply, err
	}
	s.sides.Store(true)
	c, w := s.by(r.Replication)
	track, timeout := s.adapter.Features().Tracking, timeoutKey(r.Name, r.Owner)
	if r.Under == "" {
		x := s.enrolling(sidesTopic(r.Name), r.Enrolment, r.Owner, wantsRead)
		got, err := c.ReadAcquire(ctx, ReadAcquireKeys{Lock: r.Name, Timeout: timeout, Writer: claimKey(r.Name)},
			ReadAcquireArgs{Owner: r.Owner, Lease: r.Lease, Track: track,
				Entry: x.entry(r.Lease), Heard: r.Heard, Instead: x.instead()})
		switch {
		case err != nil:
			err = s.fault(err)
		case len(got) != 3:
			err = strange("read_acquire", got)
		default:
			reply.AcquireReply, err = s.answer("read_acquire", got[0], nil)
			reply.QueueReply = queued(got[1])
		}
		x.answered(last(got), err)
		return reply, s.replicated(r.Name, w, &reply.AcquireReply, err)
	}
	under, proof := r.Under, timeoutKey(r.Name, r.Under)
	if r.UnderWriter {
		under, proof = writerField(r.Under), r.Name
	}
	entered, err := c.ReadEnter(ctx, ReadEnterKeys{Lock: r.Name, Timeout: timeout, Proof: proof},
		ReadEnterArgs{Owner: r.Owner, Under: under, Lease: r.Lease, Track: track})
	reply.Granted, err = s.yes("read_enter", entered, err)
	reply.Absent = err == nil && !reply.Granted
	return reply, s.replicated(r.Name, w, &reply.AcquireReply, err)
}

// AcquireWrite implements [backend.ReadWriteStore].
func (s readWrite) AcquireWrite(ctx context.Context, r backend.WriteRequest) (out backend.WriteReply, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	s.sides.Store(true)
	c, w := s.by(r.Replication)
	x := s.enrolling(sidesTopic(r.Name), r.Enrolment, r.Owner, wantsWrite)
	reply, err := c.WriteAcquire(ctx, WriteAcquireKeys{Lock: r.Name, Writer: claimKey(r.Name)}, WriteAcquireArgs{
		Owner:    writerField(r.Owner),
		Lease:    r.Lease,
		Claimant: r.Claimant,
		Claim:    r.Claim,
		Track:    s.adapter.Features().Tracking,
		Entry:    x.entry(r.Lease),
		Heard:    r.Heard,
		Instead:  x.instead(),
	})
	switch {
	case err != nil:
		err = s.fault(err)
	case len(reply) != 4:
		err = strange("write_acquire", reply)
	default:
		out.AcquireReply, err = s.answer("write_acquire", reply[0], nil)
		out.Claimed, out.QueueReply = err == nil && reply[1] == 1, queued(reply[2])
	}
	x.answered(last(reply), err)
	return out, s.replicated(r.Name, w, &out.AcquireReply, err)
}

func sidesTopic(name string) backend.Topic { return backend.Topic{Kind: backend.KindWrite, Name: name} }

// last returns the last number of a reply; 0 if there is none.
func last(reply []int64) int64 {
	if len(reply) == 0 {
		return 0
	}
	return reply[len(reply)-1]
}

// answer decodes the reply of an acquire script: 0 if granted, otherwise the rest of the holder's lease in ms, -1
// without an end.
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

// SetWriteHolds implements [backend.ReadWriteStore].
func (s readWrite) SetWriteHolds(ctx context.Context, r backend.HoldsRequest) (backend.HoldsReply, error) {
	return s.setHolds(ctx, r, writerField(r.Owner))
}

// ReleaseRead implements [backend.ReadWriteStore].
func (s readWrite) ReleaseRead(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	if r.Undo && s.grants {
		held, err := s.leaves(ctx, sidesTopic(r.Name), 0, r.Owner)
		return backend.ReleaseReply{Held: held}, err
	}
	held, err := s.affirmed(ctx, "read_release", func() (int64, error) {
		return s.adapter.ReadRelease(ctx,
			ReadReleaseKeys{Lock: r.Name, Timeout: timeoutKey(r.Name, r.Owner), Prefix: tagged("", r.Name),
				Channel: rwChannel(r.Name)},
			ReadReleaseArgs{Owner: r.Owner, Publish: s.publish()})
	})
	return backend.ReleaseReply{Held: held}, err
}

// ReleaseWrite implements [backend.ReadWriteStore].
func (s readWrite) ReleaseWrite(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	if r.Undo && s.grants {
		held, err := s.leaves(ctx, sidesTopic(r.Name), 0, r.Owner)
		return backend.ReleaseReply{Held: held}, err
	}
	held, err := s.affirmed(ctx, "write_release", func() (int64, error) {
		return s.adapter.WriteRelease(ctx, rwReleaseKeys(r.Name),
			WriteReleaseArgs{Owner: writerField(r.Owner), Keep: int64(r.Keep), Publish: s.publish()})
	})
	return backend.ReleaseReply{Held: held}, err
}

// RenewReads implements [backend.ReadWriteStore].
func (s readWrite) RenewReads(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	item := func(r backend.RenewRequest) (ReadRenewItem, error) {
		return ReadRenewItem{Lock: r.Name, Timeout: timeoutKey(r.Name, r.Owner), Owner: r.Owner, Lease: r.Lease,
			Exact: r.Exact}, nil
	}
	renewal[ReadRenewItem, ReadRenewArgs]{"read_renew", s.adapter.ReadRenew, item, nil}.of(ctx, s.core, in, out)
}

// RenewWrites implements [backend.ReadWriteStore].
func (s readWrite) RenewWrites(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	item := func(r backend.RenewRequest) (WriteRenewItem, error) {
		return WriteRenewItem{Lock: r.Name, Owner: writerField(r.Owner), Lease: r.Lease, Exact: r.Exact}, nil
	}
	renewal[WriteRenewItem, WriteRenewArgs]{"write_renew", s.adapter.WriteRenew, item, nil}.of(ctx, s.core, in, out)
}

// InspectRW implements [backend.ReadWriteStore].
func (s readWrite) InspectRW(ctx context.Context, name string) (backend.Record, error) {
	reply, err := s.inspect(ctx, name)
	if err != nil || len(reply) == 0 {
		return backend.Record{}, err
	}
	left, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil || left < -2 {
		return backend.Record{}, strange("rw_inspect", reply)
	}
	return ofSides(left, reply[1], reply[2:]), nil
}

// ForceReleaseRW implements [backend.ReadWriteStore].
func (s readWrite) ForceReleaseRW(ctx context.Context, r backend.ForceRequest) (bool, error) {
	if r.Owner != "" {
		return s.forceSide(ctx, backend.ReleaseRequest{Name: r.Name, Owner: r.Owner})
	}
	return s.affirmed(ctx, "rw_force_release", func() (int64, error) {
		return s.adapter.RWForceRelease(ctx, RwForceReleaseKeys(rwReleaseKeys(r.Name)),
			RwForceReleaseArgs{Publish: s.publish()})
	})
}

// forceSide releases the side that an owner holds. The first command finds out which side that is; the second compares
// and releases. An owner has one side only, so nothing is lost if others come or go in between.
func (s readWrite) forceSide(ctx context.Context, r backend.ReleaseRequest) (bool, error) {
	fields, err := s.inspect(ctx, r.Name)
	var reply backend.ReleaseReply
	for i := 2; i < len(fields) && err == nil && !reply.Held; i += 2 {
		switch fields[i] {
		case r.Owner:
			reply, err = s.ReleaseRead(ctx, r)
		case writerField(r.Owner):
			reply, err = s.ReleaseWrite(ctx, r)
		}
	}
	return reply.Held, err
}

// inspect reads a read-write lock: the time to live, the mode, and the fields with their values in turn; nothing if
// there is no lock.
func (s readWrite) inspect(ctx context.Context, name string) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	reply, err := s.adapter.RWInspect(ctx, RwInspectKeys{Lock: name, Prefix: tagged("", name)})
	if err != nil {
		return nil, s.fault(err)
	}
	if len(reply)%2 != 0 {
		return nil, strange("rw_inspect", reply)
	}
	return reply, nil
}

// Withdraw implements [backend.ReadWriteStore].
func (s readWrite) Withdraw(ctx context.Context, name, claimant string) error {
	_, err := s.affirmed(ctx, "rw_withdraw", func() (int64, error) {
		return s.adapter.RWWithdraw(ctx, RwWithdrawKeys{Lock: name, Writer: claimKey(name), Channel: rwChannel(name)},
			RwWithdrawArgs{Claimant: claimant, Publish: s.publish()})
	})
	return err
}

func rwReleaseKeys(name string) WriteReleaseKeys {
	return WriteReleaseKeys{Lock: name, Prefix: tagged("", name), Channel: rwChannel(name)}
}
