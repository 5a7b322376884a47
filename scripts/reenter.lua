--! script reenter
--! key 1 lock    hash
--! key 2 token   string
--! arg 1 owner   string
--! arg 2 holds   int
--! arg 3 lease   ms
--! arg 4 fenced  bool
--! arg 5 track   bool
--! reply ints    1, token (0 unless fenced): held; 0, 0: the owner does not hold the lock
--
-- Sets the hold count of an owner, which is absolute so that a request that
-- arrives twice counts once, and its lease to max(remaining, lease).
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return {0, 0}
end
local token = 0
if ARGV[4] == '1' then
  if redis.call('exists', KEYS[2]) == 1 then
    token = redis.call('incr', KEYS[2])
  else
    local now = redis.call('time')
    token = now[1] * 1000 + math.floor(now[2] / 1000)
    redis.call('set', KEYS[2], string.format('%.0f', token))
  end
end
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
local left = redis.call('pttl', KEYS[1])
if left >= 0 and left < tonumber(ARGV[3]) then
  redis.call('pexpire', KEYS[1], ARGV[3])
end
if ARGV[5] == '1' then
  redis.call('exists', KEYS[1])
end
return {1, token}
