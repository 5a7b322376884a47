//go:build linux

package exclusion

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// brokenBackend wraps the sessions of a backend with one that is wrong in one way.
type brokenBackend struct {
	backend.Backend
	how string
}

func init() {
	broken = func(how string, b backend.Backend) backend.Backend {
		if how == "" {
			return b
		}
		return &brokenBackend{b, how}
	}
}

func (b *brokenBackend) Open(h backend.Handler) (backend.Store, error) {
	heard := h
	if b.how == "wake before subscribe" {
		heard = deaf{h} // the session itself hears of releases only
	}
	x, err := b.Backend.Open(heard)
	if err != nil {
		return nil, err
	}
	all, plain := everything{x}, bare{x}
	switch b.how {
	case "release without owner check":
		return releasesAnybodys{all}, nil
	case "grant in vain":
		return &grantsInVain{everything: all}, nil
	case "downgrade that frees":
		return dropsReaders{all}, nil
	case "release that counts twice":
		return &miscounts{everything: all, times: 2}, nil
	case "release that does not count":
		return &miscounts{everything: all, times: 0}, nil
	case "wake before subscribe":
		return &wakesEarly{Store: plain, handler: h}, nil
	case "renewal after release":
		return &renewsOn{Store: plain, lease: map[string]time.Duration{}}, nil
	}
	return nil, fmt.Errorf("no lock is broken like %q", b.how)
}

// everything is a session with all kinds of locks and counts, which go from one owner to the next by the methods of a
// session only.
type everything struct{ backend.Store }

func (x everything) Capabilities() backend.Capabilities {
	can := x.Store.Capabilities()
	return backend.Capabilities{Fair: can.Fair, ReadWrite: can.ReadWrite, CountDownLatches: can.CountDownLatches,
		CountingSemaphores: can.CountingSemaphores, Semaphores: can.Semaphores}
}

// bare is a session of plain locks.
type bare struct{ backend.Store }

func (bare) Capabilities() backend.Capabilities { return backend.Capabilities{} }

// releasesAnybodys does what DEL in place of the owner-checked script does.
type releasesAnybodys struct{ everything }

func (x releasesAnybodys) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return releaseAnybodys(ctx, r, x.everything.Release, x.ForceRelease)
}

// releaseAnybodys removes the record though the owner does not hold it.
func releaseAnybodys(ctx context.Context, r backend.ReleaseRequest,
	release func(context.Context, backend.ReleaseRequest) (backend.ReleaseReply, error),
	force func(context.Context, backend.ForceRequest) (bool, error)) (backend.ReleaseReply, error) {
	reply, err := release(ctx, r)
	if err == nil && !reply.Held && r.Keep == 0 {
		reply.Held, err = force(ctx, backend.ForceRequest{Name: r.Name})
	}
	return reply, err
}

func (x releasesAnybodys) Capabilities() backend.Capabilities {
	can := x.everything.Capabilities()
	can.ReadWrite, can.Semaphores = anybodysRW{can.ReadWrite}, anybodysPermits{can.Semaphores}
	can.Fair = anybodysFair{can.Fair, x.Store}
	return can
}

type anybodysRW struct{ backend.ReadWriteStore }

func (x anybodysRW) ReleaseRead(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return releaseAnybodys(ctx, r, x.ReadWriteStore.ReleaseRead, x.ForceReleaseRW)
}

func (x anybodysRW) ReleaseWrite(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return releaseAnybodys(ctx, r, x.ReadWriteStore.ReleaseWrite, x.ForceReleaseRW)
}

type anybodysFair struct {
	backend.FairStore
	s backend.Store
}

func (x anybodysFair) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return releaseAnybodys(ctx, r, x.FairStore.Release, x.s.ForceRelease)
}

type anybodysPermits struct{ backend.SemaphoreStore }

func (x anybodysPermits) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	add := func(ctx context.Context, f backend.ForceRequest) (bool, error) {
		t := backend.Topic{Kind: backend.KindSemaphore, Name: f.Name}
		_, err := x.AddCount(ctx, backend.CountRequest{Topic: t, ID: "twice " + r.Owner, N: 1})
		return true, err
	}
	return releaseAnybodys(ctx, r, x.SemaphoreStore.Release, add)
}

// grantsInVain grants to one waiter in so many of a queue what another holds.
type grantsInVain struct {
	everything
	refusals atomic.Int64
}

func (x *grantsInVain) Capabilities() backend.Capabilities {
	can := x.everything.Capabilities()
	can.Fair = fairInVain{can.Fair, x}
	return can
}

type fairInVain struct {
	backend.FairStore
	by *grantsInVain
}

func (x fairInVain) Acquire(ctx context.Context, r backend.FairRequest) (backend.FairReply, error) {
	reply, err := x.FairStore.Acquire(ctx, r)
	if err == nil && !reply.Granted && reply.Remaining > 0 && x.by.refusals.Add(1)%20 == 0 {
		x.Leave(ctx, backend.LeaveRequest{Name: r.Name, Owner: r.Owner, Wait: r.Wait})
		return backend.FairReply{AcquireReply: backend.AcquireReply{Granted: true}}, nil
	}
	return reply, err
}

// dropsReaders removes the record when a writer releases it, though it reads on.
type dropsReaders struct{ everything }

func (x dropsReaders) Capabilities() backend.Capabilities {
	can := x.everything.Capabilities()
	can.ReadWrite = readersDropped{can.ReadWrite}
	return can
}

type readersDropped struct{ backend.ReadWriteStore }

func (x readersDropped) ReleaseWrite(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	reply, err := x.ReadWriteStore.ReleaseWrite(ctx, r)
	if err == nil && r.Keep == 0 {
		_, err = x.ForceReleaseRW(ctx, backend.ForceRequest{Name: r.Name})
	}
	return reply, err
}

// miscounts has one in so many releases of a semaphore count as often as it says.
type miscounts struct {
	everything
	times    int
	releases atomic.Int64
}

func (x *miscounts) Capabilities() backend.Capabilities {
	can := x.everything.Capabilities()
	can.CountingSemaphores = miscounted{can.CountingSemaphores, x}
	return can
}

type miscounted struct {
	backend.CountingSemaphoreStore
	by *miscounts
}

func (s miscounted) AddCount(ctx context.Context, r backend.CountRequest) (sum int64, err error) {
	times := 1
	if s.by.releases.Add(1)%50 == 0 {
		times = s.by.times
	}
	for i := range times {
		q := r
		q.ID = fmt.Sprint(r.ID, ":", i)
		if sum, err = s.CountingSemaphoreStore.AddCount(ctx, q); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// wakesEarly tells its waiters that they are subscribed when it has only begun to be,
// so they try, and then sleep, before they can hear of a release.
type wakesEarly struct {
	backend.Store
	handler backend.Handler
	mu      sync.Mutex
	wanted  map[backend.Topic]*time.Timer
}

func (x *wakesEarly) Subscribe(t backend.Topic) {
	x.handler.Watching(t)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.wanted == nil {
		x.wanted = map[backend.Topic]*time.Timer{}
	}
	x.wanted[t] = time.AfterFunc(time.Millisecond, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.wanted[t] != nil {
			x.Store.Subscribe(t)
		}
	})
}

func (x *wakesEarly) Unsubscribe(t backend.Topic) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if timer := x.wanted[t]; timer != nil {
		timer.Stop()
	}
	delete(x.wanted, t)
	x.Store.Unsubscribe(t)
}

// deaf hears of releases only: not that it is subscribed now, and nothing of what
// client-side caching tells, which repairs a wake-up that was missed.
type deaf struct{ backend.Handler }

func (deaf) Watching(backend.Topic) {}
func (deaf) Changed(backend.Topic)  {}
func (deaf) ChangedAll()            {}

// renewsOn has a watchdog of the kind that sets the key whether it is there or not,
// and after some releases forgets to end it: as soon as it wins the race with the other waiters.
type renewsOn struct {
	backend.Store
	mu       sync.Mutex
	lease    map[string]time.Duration
	releases atomic.Int64
}

func (x *renewsOn) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	reply, err := x.Store.Acquire(ctx, r)
	if err == nil && reply.Granted {
		x.mu.Lock()
		x.lease[r.Owner] = r.Lease
		x.mu.Unlock()
	}
	return reply, err
}

func (x *renewsOn) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	reply, err := x.Store.Release(ctx, r)
	x.mu.Lock()
	lease := x.lease[r.Owner]
	delete(x.lease, r.Owner)
	x.mu.Unlock()
	if err != nil || !reply.Held || r.Keep > 0 || x.releases.Add(1) < 50 {
		return reply, err
	}
	renew := func() bool {
		reply, err := x.Store.Acquire(ctx, backend.AcquireRequest{Name: r.Name, Owner: r.Owner, Lease: lease})
		x.Store.Renew(ctx, []backend.RenewRequest{{Name: r.Name, Owner: r.Owner, Lease: lease}},
			make([]backend.RenewResult, 1))
		return err == nil && reply.Granted
	}
	go func() {
		for renew() {
			time.Sleep(lease / 3)
		}
	}()
	return reply, err
}
