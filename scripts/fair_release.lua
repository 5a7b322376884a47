--! script fair_release
--! key 1 lock     hash
--! key 2 queue    list
--! key 3 timeouts zset
--! key 4 channel  channel
--! arg 1 owner    string
--! arg 2 keep     int
--! arg 3 absence  ms
--! arg 4 counts   bool
--! arg 5 publish  string
--! reply int      1 done; 0 the owner does not hold the lock
--
-- Sets the hold count of an owner to keep; at zero the lock is free, and the first in
-- the queue is told, on a channel of its own, or those who wait for the plain lock
-- if nobody in the queue can be reached. One whom the message does not reach may be dead, or not be
-- listening yet: it has a moment to come, and the next is told, and so on.
-- On a cluster without sharded pub/sub PUBLISH counts the subscribers of its own node only. Its count
-- decides nothing there (counts is 0): the first is told, and the first of another client, which asks
-- and so gives the places before its own a moment to come (see fair_acquire).
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
if ARGV[4] == '0' then -- see above
  local queue = redis.call('lrange', KEYS[2], 0, 63)
  local client = queue[1] and string.match(queue[1], '^.*:')
  for i, field in ipairs(queue) do
    if i == 1 or string.match(field, '^.*:') ~= client then
      redis.call(ARGV[5], KEYS[4] .. ':' .. field, '0')
      if i > 1 then
        break
      end
      if tonumber(redis.call('zscore', KEYS[3], field) or limit + 1) < limit then
        redis.call('zadd', KEYS[3], limit, field)
      end
    end
  end
  if #queue == 0 then
    redis.call(ARGV[5], KEYS[4], '0')
  end
  return 1
end
local java = '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$' -- one of Redisson's: see fair_acquire
local i, told, alone, silent = 0, false, false, {}
while not told do
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
    local client = not string.find(field, java) and string.match(field, '^.*:')
    if client then
      silent[client] = true -- it is dead, perhaps: see fair_acquire
    end
  end
  if not told and i == 0 and score <= now then
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], field)
  else
    i = i + 1
  end
end
for _, other in ipairs(next(silent) and redis.call('lrange', KEYS[2], 0, -1) or {}) do
  if silent[string.match(other, '^.*:') or ''] and tonumber(redis.call('zscore', KEYS[3], other) or limit) > limit then
    local count = redis.pcall('pubsub', ARGV[5] == 'spublish' and 'shardnumsub' or 'numsub', KEYS[4] .. ':' .. other)
    if count[2] == 0 then
      redis.call('zadd', KEYS[3], limit, other)
    end
  end
end
if alone then
  redis.call(ARGV[5], KEYS[4], '0')
end
return 1
