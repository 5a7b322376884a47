package memory

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

var _ backend.RelaySession = (*session)(nil)

// Relays implements [backend.RelaySession].
func (x *session) Relays() bool { return true }

// HandOver implements [backend.RelaySession]. Sessions of one store are told of each
// release, so none waits in turn.
func (x *session) HandOver(ctx context.Context, q backend.HandOverRequest) (backend.HandOverReply, error) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	if err != nil {
		return backend.HandOverReply{}, err
	}
	r, err := s.held(q.Name, q.Owner)
	if r == nil {
		return backend.HandOverReply{}, err
	}
	if !s.leave(r, q.Owner) {
		return backend.HandOverReply{Held: true}, nil
	}
	if q.Yield && x.others(q.Name) {
		s.released(r)
		return backend.HandOverReply{Held: true}, nil
	}
	s.put(&record{name: q.Name, owner: q.Successor, holds: 1, holder: x}, q.Lease)
	reply := backend.HandOverReply{Held: true, Granted: true}
	if q.Fenced {
		reply.Token = s.tokens.next(q.Name)
	}
	return reply, nil
}

// others tells whether another session hears of releases of a lock.
func (x *session) others(name string) bool {
	for w := range x.store.watchers[backend.Topic{Kind: backend.KindLock, Name: name}] {
		if w != x {
			return true
		}
	}
	return false
}

// StepBack implements [backend.RelaySession].
func (x *session) StepBack(ctx context.Context, t backend.Topic) error {
	err := x.enter(ctx)
	defer x.store.mu.Unlock()
	return err
}
