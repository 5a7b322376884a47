--! fragment tell_next result
--
-- Tells the first waiter in the queue of a fair lock, on a channel of its own, or the waiters for the plain lock if
-- no subscriber in the queue is reached. A waiter that the message does not reach may be dead, or not listening
-- yet: it has a moment to come, and the next is told, and so on.
--
-- On a cluster without sharded pub/sub PUBLISH counts the subscribers of its own node only. Its count
-- decides nothing there (counts is 0): the first is told, and the first of another client, which asks
-- and so gives the places before its own a moment to come (see fair_acquire).
--
-- Where clients wait for the plain lock of that name, both sides take turns (see take_turns): the queue of the plain lock
-- is served, or a window is told to the fair waiters.
--! include queue_of lock=KEYS[1]
if redis.pcall('exists', queue) == 1 and redis.call('exists', KEYS[1]) == 0 then
  local served = false
  --! include serve_queue lock=KEYS[1] queue=queue channel=KEYS[4] mark='n' asker='' heard=true freed=true served=served
  if served then
    return result
  end
end
local limit, alone = now + tonumber(ARGV[3]), false
local head = redis.pcall('lindex', KEYS[2], 0)
local score = redis.pcall('zscore', KEYS[3], type(head) == 'string' and head or '')
local told, silent = ARGV[4] == '0', {}
if type(head) ~= 'string' or type(score) == 'table' then -- empty, or another's data, which fails no release
  told, alone = true, true
elseif told then
  local client = string.match(head, '^.*:')
  for i, field in ipairs(redis.call('lrange', KEYS[2], 0, 63)) do
    if i == 1 or string.match(field, '^.*:') ~= client then
      redis.call(ARGV[5], KEYS[4] .. ':' .. field, '0')
      if i > 1 then
        break
      end
      score = math.min(tonumber(score or 1e13), 1e13)
      if score < limit then
        redis.call('zadd', KEYS[3], limit - (1 - score % 1) % 1, field)
      end
    end
  end
end
local i, field = 0, head
for _ = 1, told and 0 or 4096 do -- behind so many that are silent, waiters that live ask by themselves
  local java = string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') -- an owner of Redisson's
  score = math.min(tonumber(score or 1e13), 1e13)
  told = redis.call(ARGV[5], KEYS[4] .. ':' .. field, '0') > 0
  if told and score < limit then
    redis.call('zadd', KEYS[3], limit - (score % 1 >= 0.5 and 0.5 or 0), field)
  elseif not told and score > limit and (i == 0 or not java) then
    redis.call('zadd', KEYS[3], limit - (score % 1 >= 0.5 and 0.25 or 0.75), field)
    local client = not java and string.match(field, '^.*:')
    if client then
      silent[client] = true
    end
  end
  if told then
    break
  elseif i == 0 and score <= now then
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], field)
  else
    i = i + 1
  end
  field = redis.call('lindex', KEYS[2], i)
  if not field then
    alone = true
    break
  end
  score = redis.call('zscore', KEYS[3], field)
end
--! include silent_clients publish=ARGV[5] channel=KEYS[4]
if alone then
  local served = false
  --! include tell_waiters lock=KEYS[1] channel=KEYS[4] publish=ARGV[5] served=served
end
return result
