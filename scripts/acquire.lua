--! script acquire
--! key 1 lock    hash NAME
--! arg 1 owner   string
--! arg 2 lease   ms
--! reply int     0 granted; n>0 refused, n ms left; -1 refused, no expiry
--! bound 4000 calls 25 MB
--
-- Grants the lock to an owner that holds nothing. A repeated request, of an owner that holds the lock, is granted
-- again and counts once. It then writes the stored time again, for two reasons: WAIT covers only the writes of its
-- own connection, and the first request may have used another; and a server that may not write any more must not
-- grant. A half-made record without a time to live gets one. A free lock with a queue is reserved for the first
-- entry.
local free
--! include look lock=KEYS[1] free=free
if free then
  redis.call('hset', KEYS[1], ARGV[1], '1')
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  local left = redis.call('pttl', KEYS[1])
  redis.call('pexpire', KEYS[1], left > 0 and left or ARGV[2])
  return 0
end
--! include not_read_write
local left = redis.call('pttl', KEYS[1])
if left < 0 then
  return left == -2 and window_shortest or -1 -- -2: no record, a window is open
end
return math.max(left, 1)
