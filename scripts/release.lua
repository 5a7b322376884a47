--! script release
--! key 1 lock    hash
--! key 2 channel channel
--! arg 1 owner   string
--! arg 2 keep    int
--! arg 3 publish string
--! reply int     1 done; 0 the owner does not hold the lock
--
-- Sets the hold count of an owner to keep; at zero the lock is free and those who wait are
-- told. The lease's time is left alone. publish: publish or spublish; empty for a publish that does not
-- count all whom it reaches.
--
-- 00 is 0 to Redisson, which wakes; mortise does not heed it. Of its clients one is told, the
-- first in next (see waiter_acquire; its key ends as the channel does, with a colon behind a name
-- that has its own braces), which is taken out, and a second, which asks if the first stays silent: seven
-- digits each, and four for how many listen, in one number that says nothing to Redisson. Where none is in next, 2 wakes all.
--
-- A partial release ends with a read, so that a connection that tracks hears of
-- changes to what it still holds (its own write dropped the registration).
if ARGV[2] == '0' then
  -- Not del: a read lock that Redisson granted over this one, as it does, is not ours.
  if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
    return 0
  end
  local publish = ARGV[3] ~= '' and ARGV[3] or 'publish'
  local heard = redis.call(publish, KEYS[2], '00')
  if heard > 0 or ARGV[3] == '' then
    local next = 'mortise:1:next:' .. string.sub(KEYS[2], 24)
    if string.sub(KEYS[2], 24) == KEYS[1] then
      next = next .. ':'
    end
    local first = redis.pcall('zpopmin', next)[1] -- an error has none
    local second = first and redis.call('zrange', next, 0, 0)[1]
    redis.call(publish, KEYS[2], first and first .. (second or '0000000') .. string.format('%04d', math.min(heard, 9999)) or '2')
  end
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
redis.call('exists', KEYS[1])
return 1
