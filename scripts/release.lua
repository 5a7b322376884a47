--! script release
--! key 1 lock    hash
--! key 2 channel channel
--! arg 1 owner   string
--! arg 2 keep    int
--! arg 3 publish string
--! reply int     1 done; 0 the owner does not hold the lock
--
-- Sets the hold count of an owner to keep; at zero the lock is free and a waiter is told.
-- The lease's time is left alone. publish: publish or spublish; empty for a publish that does not
-- count all subscribers that it reaches.
--
-- 00 is 0 to Redisson, which wakes; mortise does not heed it. Of mortise's clients the first in the queue is
-- told (see enrol and include/announce_release.lua).
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
    --! include queue_key channel=KEYS[2] lock=KEYS[1]
    --! include announce_release queue=queue publish=publish channel=KEYS[2] call=call
  end
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
redis.call('exists', KEYS[1])
return 1
