//go:build linux

package bench

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// What the floors send. They do not wait, do not renew, and tell nobody when a lock is lost.
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
	errGone   = errors.New("the lock was somebody else's")
	errWaits  = errors.New("a floor does not wait")
)

// owners are as long as ours.
type owners struct{ n atomic.Uint64 }

func (o *owners) next() string {
	return "9f1c7a6e-5b5e-4d2a-9d1e-2f8f0f5c7a11:" + strconv.FormatUint(o.n.Add(1), 10)
}

func channelOf(name string) string { return "redisson_lock__channel:{" + name + "}" }

type floorGoRedis struct {
	owners
	rdb              *redis.Client
	hash             bool
	acquire, release *redis.Script
}

func openFloorGoRedis(hash bool) func(string) (locks, error) {
	return func(addr string) (locks, error) {
		f := &floorGoRedis{rdb: goRedis(addr), hash: hash, acquire: redis.NewScript(hashAcquire), release: redis.NewScript(bareRelease)}
		if hash {
			f.release = redis.NewScript(hashRelease)
		}
		return f, nil
	}
}

func (f *floorGoRedis) TryLock(ctx context.Context, name string) (func() error, error) {
	owner, keys := f.next(), []string{name}
	if f.hash {
		left, err := f.acquire.Run(ctx, f.rdb, keys, owner, leaseText).Int64()
		if err != nil {
			return nil, err
		}
		if left != 0 {
			return nil, errHeld
		}
		keys = []string{name, channelOf(name)}
	} else if ok, err := f.rdb.SetNX(ctx, name, owner, lease).Result(); err != nil {
		return nil, err
	} else if !ok {
		return nil, errHeld
	}
	return func() error {
		n, err := f.release.Run(context.Background(), f.rdb, keys, owner).Int64()
		if err == nil && n != 1 {
			return errGone
		}
		return err
	}, nil
}

func (f *floorGoRedis) Lock(ctx context.Context, name string) (func() error, error) {
	return mustGet(f.TryLock(ctx, name))
}

func (f *floorGoRedis) Close() { f.rdb.Close() }

type floorRueidis struct {
	owners
	client           rueidis.Client
	hash             bool
	acquire, release *rueidis.Lua
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
		f := &floorRueidis{client: c, hash: hash, acquire: rueidis.NewLuaScript(hashAcquire), release: rueidis.NewLuaScript(bareRelease)}
		if hash {
			f.release = rueidis.NewLuaScript(hashRelease)
		}
		return f, nil
	}
}

func (f *floorRueidis) TryLock(ctx context.Context, name string) (func() error, error) {
	owner, keys := f.next(), []string{name}
	if f.hash {
		left, err := f.acquire.Exec(ctx, f.client, keys, []string{owner, leaseText}).AsInt64()
		if err != nil {
			return nil, err
		}
		if left != 0 {
			return nil, errHeld
		}
		keys = []string{name, channelOf(name)}
	} else if err := f.client.Do(ctx, f.client.B().Set().Key(name).Value(owner).Nx().Px(lease).Build()).Error(); rueidis.IsRedisNil(err) {
		return nil, errHeld
	} else if err != nil {
		return nil, err
	}
	return func() error {
		n, err := f.release.Exec(context.Background(), f.client, keys, []string{owner}).AsInt64()
		if err == nil && n != 1 {
			return errGone
		}
		return err
	}, nil
}

func (f *floorRueidis) Lock(ctx context.Context, name string) (func() error, error) {
	return mustGet(f.TryLock(ctx, name))
}

func (f *floorRueidis) Close() { f.client.Close() }

// mustGet is for workloads in which nobody has to wait.
func mustGet(unlock func() error, err error) (func() error, error) {
	if errors.Is(err, errHeld) {
		err = errWaits
	}
	return unlock, err
}
