//go:build linux

package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/redisgo"
	ours "github.com/mortise-go/mortise/rueidis"
)

// lease is what everybody asks for. Nothing runs out during a run.
const lease = 30 * time.Second

// locks is what one process has of a contender, with connections of its own.
type locks interface {
	// Lock waits until it has the lock.
	Lock(ctx context.Context, name string) (unlock func() error, err error)
	// TryLock returns errHeld if another has it.
	TryLock(ctx context.Context, name string) (unlock func() error, err error)
	Close()
}

var errHeld = errors.New("held by another")

type role int

const (
	floor role = iota
	peer
	mine
)

type contender struct {
	name    string
	role    role
	fair    bool
	tracked bool   // a floor with the options that ours gives its client
	endless bool   // its Lock is called with a context that cannot end
	tied    bool   // a lock that is held ends with the context that it was taken with
	etcd    bool   // it needs etcd
	java    bool   // it is Worker.java's: open is nil
	binary  string // the test binary that its workers run; this one if empty
	open    func(addr string) (locks, error)
}

func contenders() []contender {
	goredis, cached := openGoRedis(), openRueidis()
	return []contender{
		{name: "bare floor, go-redis", role: floor, open: openFloorGoRedis(false)},
		{name: "hash floor, go-redis", role: floor, open: openFloorGoRedis(true)},
		{name: "bare floor, rueidis", role: floor, open: openFloorRueidis(false, false)},
		{name: "hash floor, rueidis", role: floor, open: openFloorRueidis(true, false)},
		{name: "bare floor, rueidis, tracking", role: floor, tracked: true, open: openFloorRueidis(false, true)},
		{name: "hash floor, rueidis, tracking", role: floor, tracked: true, open: openFloorRueidis(true, true)},
		{name: "mortise, go-redis", role: mine, open: goredis},
		{name: "mortise, rueidis", role: mine, open: cached},
		{name: "mortise, go-redis, Background", role: mine, endless: true, open: openEndless(goredis)},
		{name: "mortise, rueidis, Background", role: mine, endless: true, open: openEndless(cached)},
		{name: "mortise fair, go-redis", role: mine, fair: true, open: openGoRedis(mortise.Fair())},
		{name: "mortise fair, rueidis", role: mine, fair: true, open: openRueidis(mortise.Fair())},
		{name: "redsync", role: peer, open: openRedsync},
		{name: "bsm/redislock", role: peer, open: openRedislock},
		{name: "rueidislock", role: peer, tied: true, open: openRueidislock},
		{name: "etcd", role: peer, etcd: true, open: openEtcd},
		{name: "Redisson", role: peer, java: true},
		{name: "Redisson fair", role: peer, fair: true, java: true},
	}
}

func find(name string) (contender, error) {
	for _, c := range append(contenders(), fleetContenders()...) {
		if c.name == name {
			return c, nil
		}
	}
	return contender{}, fmt.Errorf("no contender %q", name)
}

// encrypted is nil where this process's clients of go-redis do without TLS.
var encrypted *tls.Config

func goRedis(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, TLSConfig: encrypted})
}

// --- mortise

type mortiseLocks struct {
	client *mortise.Client
	locker mortise.Locker
	close  func()
}

func openGoRedis(kind ...mortise.Option) func(string) (locks, error) {
	return func(addr string) (locks, error) {
		rdb := goRedis(addr)
		return openMortise(redisgo.New(rdb), kind, func() { rdb.Close() })
	}
}

func openRueidis(kind ...mortise.Option) func(string) (locks, error) {
	return func(addr string) (locks, error) {
		return openMortise(ours.New(rueidis.ClientOption{InitAddress: []string{addr}}), kind, func() {})
	}
}

func openMortise(b backend.Backend, kind []mortise.Option, after func()) (locks, error) {
	c, err := mortise.New(b)
	if err != nil {
		return nil, err
	}
	l := c.With(kind...)
	return &mortiseLocks{c, l, after}, nil
}

func (m *mortiseLocks) Lock(ctx context.Context, name string) (func() error, error) {
	return unlocking(m.locker.Lock(ctx, name))
}

func (m *mortiseLocks) TryLock(ctx context.Context, name string) (func() error, error) {
	return unlocking(m.locker.TryLock(ctx, name))
}

func unlocking(l *mortise.Lease, err error) (func() error, error) {
	switch {
	case errors.Is(err, mortise.ErrNotAcquired):
		return nil, errHeld
	case err != nil:
		return nil, err
	}
	return func() error { return l.Unlock(context.Background()) }, nil
}

func (m *mortiseLocks) Close() { m.client.Close(); m.close() }

// endless calls Lock with a context that cannot end: no caller can leave before the store has
// answered.
type endless struct{ locks }

func openEndless(open func(string) (locks, error)) func(string) (locks, error) {
	return func(addr string) (locks, error) {
		l, err := open(addr)
		return endless{l}, err
	}
}

func (e endless) Lock(_ context.Context, name string) (func() error, error) {
	return e.locks.Lock(context.Background(), name)
}

// --- redsync

type redsyncLocks struct {
	rdb *redis.Client
	rs  *redsync.Redsync
}

func openRedsync(addr string) (locks, error) {
	rdb := goRedis(addr)
	return &redsyncLocks{rdb, redsync.New(goredis.NewPool(rdb))}, nil
}

func (r *redsyncLocks) Lock(ctx context.Context, name string) (func() error, error) {
	m := r.rs.NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1<<30))
	return redsyncUnlock(m), m.LockContext(ctx)
}

func (r *redsyncLocks) TryLock(ctx context.Context, name string) (func() error, error) {
	m := r.rs.NewMutex(name, redsync.WithExpiry(lease))
	err := m.TryLockContext(ctx)
	if taken := (*redsync.ErrTaken)(nil); errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		err = errHeld
	}
	return redsyncUnlock(m), err
}

func redsyncUnlock(m *redsync.Mutex) func() error {
	return func() error {
		_, err := m.UnlockContext(context.Background())
		return err
	}
}

func (r *redsyncLocks) Close() { r.rdb.Close() }

// --- bsm/redislock

type redislockLocks struct {
	rdb    *redis.Client
	client *redislock.Client
}

func openRedislock(addr string) (locks, error) {
	rdb := goRedis(addr)
	return &redislockLocks{rdb, redislock.New(rdb)}, nil
}

func (r *redislockLocks) obtain(ctx context.Context, name string, retry redislock.RetryStrategy) (func() error, error) {
	l, err := r.client.Obtain(ctx, name, lease, &redislock.Options{RetryStrategy: retry})
	if errors.Is(err, redislock.ErrNotObtained) && ctx.Err() == nil {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return func() error { return l.Release(context.Background()) }, nil
}

func (r *redislockLocks) Lock(ctx context.Context, name string) (func() error, error) {
	// It gives up after the lease's time unless ctx has a deadline.
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	return r.obtain(ctx, name, redislock.ExponentialBackoff(time.Millisecond, 5*time.Millisecond))
}

func (r *redislockLocks) TryLock(ctx context.Context, name string) (func() error, error) {
	return r.obtain(ctx, name, redislock.NoRetry())
}

func (r *redislockLocks) Close() { r.rdb.Close() }

// --- rueidislock

type rueidislockLocks struct{ locker rueidislock.Locker }

func openRueidislock(addr string) (locks, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		KeyValidity:  lease,
		KeyMajority:  1, // one key a lock: the others do not lock several either
		// By default 20 ms, in which a slow link's replies do not arrive: no caller gets the lock then.
		TryNextAfter:   time.Second,
		NoLoopTracking: true,
	})
	return &rueidislockLocks{l}, err
}

func (r *rueidislockLocks) Lock(ctx context.Context, name string) (func() error, error) {
	_, cancel, err := r.locker.WithContext(ctx, name)
	return cancelling(cancel), err
}

func (r *rueidislockLocks) TryLock(ctx context.Context, name string) (func() error, error) {
	_, cancel, err := r.locker.TryWithContext(ctx, name)
	if errors.Is(err, rueidislock.ErrNotLocked) {
		return nil, errHeld
	}
	return cancelling(cancel), err
}

func (r *rueidislockLocks) Close() { r.locker.Close() }

func cancelling(cancel context.CancelFunc) func() error { return func() error { cancel(); return nil } }

// What the floors send. They do not wait, do not renew, and do not tell when a lock is lost.
const (
	bareRelease = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`

	hashAcquire = `if redis.call('exists', KEYS[1]) == 0 then
redis.call('hset', KEYS[1], ARGV[1], 1)
redis.call('pexpire', KEYS[1], ARGV[2])
return 0
end
return redis.call('pttl', KEYS[1])`

	hashRelease = `if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
redis.call('publish', KEYS[2], '0')
return 1
end
return 0`
)

var (
	leaseText = strconv.FormatInt(lease.Milliseconds(), 10)
	errGone   = errors.New("the lock was another's")
	errWaits  = errors.New("a floor does not wait")
)

// owners are as long as ours.
type owners struct{ n atomic.Uint64 }

func (o *owners) next() string {
	return "9f1c7a6e-5b5e-4d2a-9d1e-2f8f0f5c7a11:" + strconv.FormatUint(o.n.Add(1), 10)
}

func channelOf(name string) string { return "redisson_lock__channel:{" + name + "}" }

// floorLocks are locks by hand, with what runs their commands on a client.
type floorLocks struct {
	owners
	hash  bool
	grant func(ctx context.Context, keys []string, owner string) (bool, error)
	free  func(ctx context.Context, keys []string, owner string) (int64, error)
	close func()
}

func (f *floorLocks) TryLock(ctx context.Context, name string) (func() error, error) {
	owner, keys := f.next(), []string{name}
	granted, err := f.grant(ctx, keys, owner)
	if err != nil {
		return nil, err
	}
	if !granted {
		return nil, errHeld
	}
	if f.hash {
		keys = []string{name, channelOf(name)}
	}
	return func() error {
		return f.unlock(context.Background(), keys, owner)
	}, nil
}

func (f *floorLocks) unlock(ctx context.Context, keys []string, owner string) error {
	n, err := f.free(ctx, keys, owner)
	if err == nil && n != 1 {
		return errGone
	}
	return err
}

func (f *floorLocks) Lock(ctx context.Context, name string) (func() error, error) {
	return mustGet(f.TryLock(ctx, name))
}

func (f *floorLocks) Close() { f.close() }

// releaseOf is the script that a floor releases by.
func releaseOf(hash bool) string {
	if hash {
		return hashRelease
	}
	return bareRelease
}

func openFloorGoRedis(hash bool) func(string) (locks, error) {
	return func(addr string) (locks, error) {
		rdb, acquire, release := goRedis(addr), redis.NewScript(hashAcquire), redis.NewScript(releaseOf(hash))
		f := &floorLocks{hash: hash, close: func() { rdb.Close() }}
		f.free = func(ctx context.Context, keys []string, owner string) (int64, error) {
			return release.Run(ctx, rdb, keys, owner).Int64()
		}
		f.grant = func(ctx context.Context, keys []string, owner string) (bool, error) {
			if !hash {
				return rdb.SetNX(ctx, keys[0], owner, lease).Result()
			}
			left, err := acquire.Run(ctx, rdb, keys, owner, leaseText).Int64()
			return left == 0, err
		}
		return f, nil
	}
}

// openFloorRueidis is on a client as rueidis makes it, without caching; or tracked, on one with the
// options that ours sets: one connection, and the server tells of keys that change.
func openFloorRueidis(hash, tracked bool) func(string) (locks, error) {
	return func(addr string) (locks, error) {
		opt := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true}
		if tracked {
			opt.DisableCache, opt.PipelineMultiplex, opt.DisableRetry = false, -1, true
			opt.ClientTrackingOptions = []string{"OPTOUT", "NOLOOP"}
			opt.OnInvalidations = func([]rueidis.RedisMessage) {}
		}
		c, err := rueidis.NewClient(opt)
		if err != nil {
			return nil, err
		}
		acquire, release := rueidis.NewLuaScript(hashAcquire), rueidis.NewLuaScript(releaseOf(hash))
		f := &floorLocks{hash: hash, close: c.Close}
		f.free = func(ctx context.Context, keys []string, owner string) (int64, error) {
			return release.Exec(ctx, c, keys, []string{owner}).AsInt64()
		}
		f.grant = func(ctx context.Context, keys []string, owner string) (bool, error) {
			if hash {
				left, err := acquire.Exec(ctx, c, keys, []string{owner, leaseText}).AsInt64()
				return left == 0, err
			}
			err := c.Do(ctx, c.B().Set().Key(keys[0]).Value(owner).Nx().Px(lease).Build()).Error()
			if rueidis.IsRedisNil(err) {
				return false, nil
			}
			return true, err
		}
		return f, nil
	}
}

// mustGet is for workloads without waiters.
func mustGet(unlock func() error, err error) (func() error, error) {
	if errors.Is(err, errHeld) {
		err = errWaits
	}
	return unlock, err
}
