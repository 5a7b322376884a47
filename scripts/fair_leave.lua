--! script fair_leave
--! key 1 lock     hash
--! key 2 queue    list
--! key 3 timeouts zset
--! key 4 channel  channel
--! arg 1 owner    string
--! arg 2 wait     ms
--! arg 3 absence  ms
--! arg 4 counts   bool
--! arg 5 publish  string
--! reply int      0 neither; 1 the owner had a place; 2 it held the lock; 3 both
--
-- Takes an owner out of the queue, and releases the lock if it holds it. Those
-- behind it need not wait for it any more: their scores go down by its wait, yet not
-- below what a first one would get. If the lock is free and the owner was
-- first, the next is told, as fair_release does. A key that is no lock is not held.
local out = 0
if redis.pcall('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hdel', KEYS[1], ARGV[1]) -- not del: see release
  out = 2
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local first = false
if redis.call('zrem', KEYS[3], ARGV[1]) == 1 then
  out = out + 1
  local queue = redis.call('lrange', KEYS[2], 0, -1)
  first = queue[1] == ARGV[1]
  local behind = false
  local floor = now + math.max(redis.call('pttl', KEYS[1]), 0) + tonumber(ARGV[2])
  for i = 1, #queue do
    if queue[i] == ARGV[1] then
      behind = true
    elseif behind then
      local score = tonumber(redis.call('zscore', KEYS[3], queue[i]) or now)
      redis.call('zadd', KEYS[3], math.max(score - tonumber(ARGV[2]), math.min(score, floor)), queue[i])
    end
  end
  redis.call('lrem', KEYS[2], 0, ARGV[1])
end
if out ~= 2 and out ~= 3 and not (first and redis.call('exists', KEYS[1]) == 0) then
  return out
end
local limit = now + tonumber(ARGV[3])
if ARGV[4] == '0' then -- counts: see fair_release
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
  return out
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
return out
