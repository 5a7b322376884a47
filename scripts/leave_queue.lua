--! script leave_queue
--! key 1 lock    hash
--! key 2 channel channel
--! key 3 next    zset
--! arg 1 tag     string
--! arg 2 publish string
--! reply int     1 the client was in next; 0 it was not
--
-- Takes a client that has no waiters any more out of next. If the lock is free, it may have been told
-- of the release: then another is, as release does.
local there = redis.call('zrem', KEYS[3], ARGV[1])
if redis.call('exists', KEYS[1]) == 0 then
  local heard = redis.call(ARGV[2], KEYS[2], '00')
  --! include announce_release queue=KEYS[3] publish=ARGV[2] channel=KEYS[2] call=call
end
return there
