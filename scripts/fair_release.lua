--! script fair_release
--! key 1 lock     hash
--! key 2 queue    list
--! key 3 timeouts zset
--! key 4 channel  channel
--! arg 1 owner    string
--! arg 2 keep     int
--! arg 3 absence  ms
--! arg 4 most     int
--! arg 5 publish  string
--! reply int      1 done; 0 the owner does not hold the lock
--
-- Sets the hold count of an owner to keep; at zero the lock is free, and the first in
-- the queue is told, on a channel of its own, or those who wait for the plain lock
-- if nobody in the queue can be reached. One whom the message does not reach may be dead, or not be
-- listening yet: it has a moment to come, and the next is told, at most so many. (On a cluster
-- PUBLISH does not count those it reached by way of other nodes.)
-- The lease's time is left alone.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if ARGV[2] ~= '0' then
  redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
  redis.call('exists', KEYS[1]) -- so that a connection that tracks hears of what it still holds
  return 1
end
redis.call('hdel', KEYS[1], ARGV[1]) -- not del: see release
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local limit = now + tonumber(ARGV[3])
local java = '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$' -- one of Redisson's: see fair_acquire
local i, told, alone = 0, false, false
while not told and i < tonumber(ARGV[4]) do
  local field = redis.call('lindex', KEYS[2], i)
  if not field then
    alone = true
    break
  end
  local score = tonumber(redis.call('zscore', KEYS[3], field) or limit + 1)
  told = redis.call(ARGV[5], KEYS[4] .. ':' .. field, '0') > 0
  if told and score < limit then
    redis.call('zadd', KEYS[3], limit, field)
  elseif not told and score > limit and (i == 0 or not string.find(field, java)) then
    redis.call('zadd', KEYS[3], limit, field)
    -- Its client is dead, perhaps: see fair_acquire.
    local client = tonumber(ARGV[4]) > 2 and not string.find(field, java) and string.match(field, '^.*:')
    for _, other in ipairs(client and redis.call('lrange', KEYS[2], 0, -1) or {}) do
      if string.sub(other, 1, #client) == client and tonumber(redis.call('zscore', KEYS[3], other) or limit) > limit then
        local count = redis.pcall('pubsub', ARGV[5] == 'spublish' and 'shardnumsub' or 'numsub', KEYS[4] .. ':' .. other)
        if count[2] == 0 then
          redis.call('zadd', KEYS[3], limit, other)
        end
      end
    end
  end
  if not told and i == 0 and score <= now then
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], field)
  else
    i = i + 1
  end
end
if alone then
  redis.call(ARGV[5], KEYS[4], '0')
end
return 1
