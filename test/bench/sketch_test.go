//go:build linux

package bench

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const skEnrol = `
local mine = redis.call('hexists', KEYS[1], ARGV[1]) == 1
local free = redis.call('exists', KEYS[1]) == 0
if mine or (free and redis.call('zcard', KEYS[2]) == 0) then
  redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('zrem', KEYS[2], ARGV[3] .. ' ' .. ARGV[1])
  return 1
end
local t = redis.call('time')
redis.call('zadd', KEYS[2], 'nx', t[1] * 1000000 + t[2], ARGV[3] .. ' ' .. ARGV[1])
return 0`
const skRelease = `
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then return 0 end
while true do
  local entry = redis.call('zpopmin', KEYS[2])[1]
  if not entry then redis.call('publish', ARGV[2], '00') return 1 end
  local tag, owner = string.match(entry, '^(%S+) (.*)$')
  if redis.call('publish', 'r:' .. tag, owner) > 0 then
    redis.call('hset', KEYS[1], owner, 1) redis.call('pexpire', KEYS[1], 1000)
    return 1
  end
end`

type sketch struct {
	owners
	rdb     *redis.Client
	tag     string
	ps      *redis.PubSub
	mu      sync.Mutex
	wait    map[string]chan struct{}
	enrol   *redis.Script
	release *redis.Script
}

func openSketch(addr string) (locks, error) {
	s := &sketch{rdb: goRedis(addr), wait: map[string]chan struct{}{}, enrol: redis.NewScript(skEnrol), release: redis.NewScript(skRelease)}
	s.tag = strconv.FormatInt(time.Now().UnixNano(), 36)
	s.ps = s.rdb.Subscribe(context.Background(), "r:"+s.tag)
	if _, err := s.ps.Receive(context.Background()); err != nil {
		return nil, err
	}
	go func() {
		for {
			m, err := s.ps.Receive(context.Background())
			if err != nil {
				return
			}
			if m, ok := m.(*redis.Message); ok {
				s.mu.Lock()
				c := s.wait[m.Payload]
				s.mu.Unlock()
				if c != nil {
					c <- struct{}{}
				}
			}
		}
	}()
	return s, nil
}

func (s *sketch) Lock(ctx context.Context, name string) (func() error, error) {
	owner := s.tag + ":" + strconv.FormatUint(s.n.Add(1), 10)
	c := make(chan struct{}, 1)
	s.mu.Lock()
	s.wait[owner] = c
	s.mu.Unlock()
	defer func() { s.mu.Lock(); delete(s.wait, owner); s.mu.Unlock() }()
	for {
		got, err := s.enrol.Run(ctx, s.rdb, []string{name, name + ":q"}, owner, leaseText, s.tag).Int64()
		if err != nil {
			return nil, err
		}
		if got == 1 {
			return func() error {
				return s.release.Run(context.Background(), s.rdb, []string{name, name + ":q"}, owner, channelOf(name)).Err()
			}, nil
		}
		select {
		case <-c:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
func (s *sketch) TryLock(ctx context.Context, name string) (func() error, error) { return s.Lock(ctx, name) }
func (s *sketch) Close()                                                          { s.ps.Close(); s.rdb.Close() }
