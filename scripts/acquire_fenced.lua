--! script acquire_fenced
--! key 1 lock    hash
--! key 2 token   string
--! arg 1 owner   string
--! arg 2 lease   ms
--! reply ints    0, token: granted; n>0, 0: refused, n ms left; -1, 0: refused, no expiry
--
-- As acquire, and draws a fencing token: larger than every token that this lock
-- gave out before. A missing counter starts at the server's time in ms, so that
-- a flushed store does not start again below tokens that are out.
local free = redis.call('exists', KEYS[1]) == 0
if not free and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  if redis.call('hexists', KEYS[1], 'mode') == 1 then
    return redis.error_reply('WRONGKIND the key holds a read-write lock')
  end
  local left = redis.call('pttl', KEYS[1])
  if left < 0 then
    return {-1, 0}
  end
  return {math.max(left, 1), 0}
end
-- The token first: where it cannot be drawn, nothing is locked.
local token
if redis.call('exists', KEYS[2]) == 1 then
  token = redis.call('incr', KEYS[2])
else
  local now = redis.call('time')
  token = now[1] * 1000 + math.floor(now[2] / 1000)
  redis.call('set', KEYS[2], string.format('%.0f', token))
end
if free then
  redis.call('hset', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
end
return {0, token}
