--! script read_release
--! key 1 lock    hash
--! key 2 timeout string
--! key 3 prefix  string
--! key 4 channel channel
--! arg 1 owner   string
--! arg 2 publish string
--! reply int     1 done; 0 the owner does not hold the lock
--
-- Takes a reader out. When no live reader is left, the lock is free and its
-- waiters are told; otherwise it lives as long as the longest of them. Under a writer
-- its time is left alone, since the writer's is nowhere else. publish: publish or spublish.
-- What leaves the lock held ends with a read, so that a connection that tracks hears of
-- changes to what else it holds (its own write dropped the registration).
--
-- A script looks for 10000 holds of a record in all, whatever the counts in it say: more would
-- stop the server. A record with more holds counts as damaged, and keeps its time, which is the
-- longer one.
--
-- A reader that stays at least as long as the reader that leaves ends the search: the lock's time is
-- then not the leaver's. The leaver's time is read first, so that the comparison is right where time
-- goes on inside a script (before Redis 7).
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  redis.call('del', KEYS[2]) -- where the lock was removed, and this not
  return 0
end
local own = redis.call('pttl', KEYS[2])
if own < 1 then
  own = math.huge -- its time is over, or has no end: the longest of the others counts
end
local held = redis.call('del', KEYS[2])
redis.call('hdel', KEYS[1], ARGV[1])
if redis.call('hget', KEYS[1], 'mode') == 'write' then -- a read after the write, too
  return held
end
local most, budget = 0, 10000
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
  local holds = tonumber(fields[i + 1]) or 0
  budget = budget - math.max(0, holds) -- in this order: 0 for what is not a number
  if budget < 0 then
    return held
  end
  for k = 1, holds do
    most = math.max(most, redis.call('pttl', KEYS[3] .. ':' .. fields[i] .. ':rwlock_timeout:' .. k))
  end
  if most >= own then
    return held
  end
end
if most > 0 then
  redis.call('pexpire', KEYS[1], most)
  redis.call('exists', KEYS[1])
else
  redis.call('del', KEYS[1])
  --! include announce_side publish=ARGV[2] channel_key=KEYS[4] reading=false message='0'
end
return held
