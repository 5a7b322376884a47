--! fragment tell_next result
--
-- Tells the first waiter in the queue of a fair lock, on a channel of its own, or the waiters for the plain lock if
-- no subscriber in the queue is reached. A waiter that the message does not reach may be dead, or not listening
-- yet: it has a moment to come, and the next is told, and so on.
--
-- On a cluster without sharded pub/sub PUBLISH counts the subscribers of its own node only. Its count
-- decides nothing there (counts is 0): the first is told, and the first of another client, which asks
-- and so gives the places before its own a moment to come (see fair_acquire).
local limit, alone = now + tonumber(ARGV[3]), false
if ARGV[4] == '0' then
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
  alone = #queue == 0
end
local java = '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$' -- an owner of Redisson's
local i, told, silent = 0, ARGV[4] == '0', {}
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
      silent[client] = true
    end
  end
  if not told and i == 0 and score <= now then
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], field)
  else
    i = i + 1
  end
end
--! include silent_clients publish=ARGV[5] channel=KEYS[4]
if alone then
  local served = false
  --! include tell_waiters lock=KEYS[1] channel=KEYS[4] publish=ARGV[5] served=served
end
return result
