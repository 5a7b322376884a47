--! script read_release
--! key 1 lock    hash    NAME
--! key 2 timeout string  {NAME}:READER:rwlock_timeout:1
--! key 3 prefix  string  {NAME}
--! key 4 channel channel redisson_rwlock:{NAME}
--! arg 1 owner   string
--! arg 2 publish publish|spublish
--! reply int     1 done; 0 the owner does not hold the lock
--! bound 11500 calls 10 MB
--
-- Removes a reader. If no live reader is left, it removes the lock and tells the waiters; otherwise the lock lives
-- as long as the longest lease of a reader. Under a writer the lock's time to live does not change: it is the only
-- record of the writer's lease. publish: publish or spublish. If the lock stays held, the script ends with a read:
-- see release.
--
-- The search ends at a reader whose lease is at least as long as that of the leaving reader: the lock's time to live
-- is then right. The leaving reader's lease is read first, so the comparison is also right where time passes inside
-- a script (before Redis 7).
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  redis.call('del', KEYS[2]) -- the lock was removed without this key
  return 0
end
local own = redis.call('pttl', KEYS[2])
if own < 1 then
  own = math.huge -- expired, or without an end: search all other readers
end
local held = redis.call('del', KEYS[2])
redis.call('hdel', KEYS[1], ARGV[1])
if redis.call('hget', KEYS[1], 'mode') == 'write' then -- also the read after the write
  return held
end
local size = redis.call('hlen', KEYS[1])
if size > readers_few and size <= holds_read + 1 then
  -- HGETALL for each of many readers that leave would cost the square of their number. The lock may last for an eighth
  -- longer than its readers: as long as a reader is left whose lease is not much shorter, nothing changes.
  local enough = math.min(own, redis.call('pttl', KEYS[1]) * lease_enough)
  for _, field in ipairs(redis.pcall('hrandfield', KEYS[1], readers_sampled)) do -- an error has no fields
    if #field <= owner_longest and redis.call('pttl', KEYS[3] .. ':' .. field .. ':rwlock_timeout:1') >= enough then
      return held
    end
  end
end
local longest, budget = 0, holds_read
--! include longest_reader lock=KEYS[1] prefix=KEYS[3] size=size enough=own longest=longest
if not longest then
  return held
elseif longest > 0 then
  redis.call('pexpire', KEYS[1], longest)
  redis.call('exists', KEYS[1])
else
  redis.call('del', KEYS[1])
  --! include announce_side publish=ARGV[2] channel_key=KEYS[4] reading=false message='0'
end
return held
