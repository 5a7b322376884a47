--! script release
--! key 1 lock    hash
--! key 2 channel channel
--! arg 1 owner   string
--! arg 2 keep    int
--! arg 3 publish string
--! reply int     1 done; 0 the owner does not hold the lock
--
-- Sets the hold count of an owner to keep; at zero the queue is served, or where it is empty all waiters are told.
-- The lease's time is left alone.
--
-- A partial release ends with a read, so that a connection that tracks hears of
-- changes to what it still holds (its own write dropped the registration).
if ARGV[2] == '0' then
  -- Not del: a read lock that Redisson granted over this one, as it does, is not ours.
  if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
    return 0
  end
  local served = false
  --! include tell_waiters lock=KEYS[1] channel=KEYS[2] publish=ARGV[3] served=served
  return 1
end
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
redis.call('exists', KEYS[1])
return 1
