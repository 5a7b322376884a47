//go:build linux

package bench

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// handoffFloor is the least that a process does to get a lock in its turn: it puts itself into a queue, is told by the
// process before it, and claims the lock; or does not claim it, but takes the message for the lock. Neither is a lock
// to use: nothing is renewed, checked or repaired, and a message may be forged. One goroutine uses it at a time.
type handoffFloor struct {
	rdb    *redis.Client
	own    *redis.PubSub
	tag    string
	claims bool
}

var (
	floorAsk = redis.NewScript(`
		local holder = redis.call('get', KEYS[1])
		if not holder or holder == ARGV[1] then
			redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[2])
			return 1
		end
		redis.call('rpush', KEYS[2], ARGV[1])
		return 0`)
	floorRelease = redis.NewScript(`
		local next = redis.call('lpop', KEYS[2])
		if not next then
			return redis.call('del', KEYS[1])
		end
		redis.call('set', KEYS[1], next, 'px', ARGV[1])
		return redis.call('publish', next, '')`)
)

func openHandoffFloor(claims bool) func(addr string) (locks, error) {
	return func(addr string) (locks, error) {
		rdb := goRedis(addr)
		tag := "floor:" + strconv.FormatInt(time.Now().UnixNano(), 36)
		own := rdb.Subscribe(context.Background(), tag)
		if _, err := own.Receive(context.Background()); err != nil {
			return nil, err
		}
		return &handoffFloor{rdb, own, tag, claims}, nil
	}
}

func (f *handoffFloor) Lock(ctx context.Context, name string) (func() error, error) {
	keys := []string{name, name + ":queue"}
	ask := func() (bool, error) {
		got, err := floorAsk.Run(ctx, f.rdb, keys, f.tag, lease.Milliseconds()).Int()
		return got == 1, err
	}
	got, err := ask()
	for !got && err == nil {
		if _, err = f.own.ReceiveMessage(ctx); err != nil {
			break
		}
		if got = true; f.claims {
			got, err = ask()
		}
	}
	if err != nil {
		return nil, err
	}
	return func() error {
		return floorRelease.Run(context.Background(), f.rdb, keys, lease.Milliseconds()).Err()
	}, nil
}

func (f *handoffFloor) TryLock(context.Context, string) (func() error, error) { return nil, errHeld }

func (f *handoffFloor) Close() {
	f.own.Close()
	f.rdb.Close()
}
