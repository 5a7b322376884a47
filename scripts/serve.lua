--! script serve
--! key 1 lock      hash
--! key 2 channel   channel
--! key 3 next      zset
--! key 4 token     string
--! arg 1 owner     string
--! arg 2 successor string
--! arg 3 lease     ms
--! arg 4 fenced    bool
--! arg 5 track     bool
--! arg 6 yield     bool
--! arg 7 tag       string
--! arg 8 own       int
--! arg 9 keep      ms
--! arg 10 publish  string
--! arg 11 counts   bool
--! reply ints      0, 0: the owner does not hold the lock; 1, 0: released; 2, 0: released, and the client's tag is in next; 3, token (0 unless fenced): the successor holds it
--
-- Releases the lock and grants it to a successor of the same client in one step, without a message.
-- With yield only if no other client waits; otherwise it is released, as by release, and the
-- client, which has waiters of its own, gets a place at the end of next, if it has a tag. A subscriber of the
-- channel beyond own, the number of the client's own subscriptions, may be a waiter.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return {0, 0}
end
local others = redis.call('hlen', KEYS[1]) > 1 -- a read lock that Redisson granted over this one
if ARGV[6] == '1' and not others then
  local first = redis.call('zrange', KEYS[3], 0, 1)
  others = ARGV[11] == '0' or first[2] or first[1] and first[1] ~= ARGV[7]
end
local heard
if ARGV[6] == '1' and not others then
  heard = redis.call(ARGV[10], KEYS[2], '00')
  others = heard > tonumber(ARGV[8])
end
if others then
  local now = redis.call('time')
  redis.call('hdel', KEYS[1], ARGV[1])
  local out = 1
  if ARGV[7] ~= '' then
    redis.pcall('zrem', KEYS[3], ARGV[7])
    if type(redis.pcall('zadd', KEYS[3], now[1] * 1000000 + now[2], ARGV[7])) ~= 'table' then
      redis.call('pexpire', KEYS[3], ARGV[9])
      out = 2
    end
  end
  heard = heard or redis.call(ARGV[10], KEYS[2], '00')
  --! include announce_release queue=KEYS[3] publish=ARGV[10] channel=KEYS[2] call=call
  return {out, 0}
end
-- The token first: where it cannot be drawn, nothing is handed over.
local token = 0
if ARGV[4] == '1' then
  --! include draw_token counter=KEYS[4] token=token
end
redis.call('hset', KEYS[1], ARGV[2], 1)
redis.call('hdel', KEYS[1], ARGV[1])
redis.call('pexpire', KEYS[1], ARGV[3])
--! include read_back track=ARGV[5] lock=KEYS[1]
return {3, token}
